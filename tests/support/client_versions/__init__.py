"""One scenario for client libraries from five years ago to today, each version in its own process."""
