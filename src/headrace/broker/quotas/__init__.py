"""Quotas of clients: measured rates, limits by user and client id, throttle times, and limits of connections."""
