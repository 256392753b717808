"""Consumer groups: members, generations, committed offsets; the content of `__consumer_offsets`."""
