"""The consumer: subscription, positions, fetching and the faces that users see."""
