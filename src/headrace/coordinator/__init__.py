"""Coordinators: state machines whose state is the content of an internal topic."""
