"""Shared basics: clock, configuration, errors, ids, background work. Imports no other package of Headrace."""
