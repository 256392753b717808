"""Search through whole topics, export and copy: in a process of its own, with Arrow columns."""
