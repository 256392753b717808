"""Test helpers: fake brokers, simulated producers, other projects' assignors."""
