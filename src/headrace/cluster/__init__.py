"""What holds brokers together: the coordination store, the controller and its state machines, the metadata image."""
