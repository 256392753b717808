"""Replication: the leader's view of its followers, changes of the in-sync replicas, and the fetchers of followers."""
