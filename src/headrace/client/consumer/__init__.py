"""The consumer: subscription, positions, fetching, and the public consumer classes."""
