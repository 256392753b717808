"""Group and transaction coordinators: state machines whose state is stored in an internal topic."""
