"""The broker's configuration: tables of keys, what is set at run time, and how it is described."""
