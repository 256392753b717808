"""Alerts: rules on a cluster's snapshots, and their notifications."""
