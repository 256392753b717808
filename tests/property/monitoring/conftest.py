from hypothesis import settings

# A busy machine may need longer than Hypothesis allows for an example.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")
