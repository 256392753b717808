"""The coordination store of several processes on one machine: an embedded store in one of them, served by a socket."""
