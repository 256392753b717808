from hypothesis import settings

# A busy machine may pause for longer than Hypothesis' deadline of an example.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")
