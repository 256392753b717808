"""The group coordinator: members, generations and committed offsets, stored in `__consumer_offsets`."""
