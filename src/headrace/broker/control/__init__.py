"""The control plane of a broker: the controller's commands to brokers, and brokers' requests to the controller."""
