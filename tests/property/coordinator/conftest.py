from hypothesis import settings

# A shared machine may stop for longer than Hypothesis lets an example take.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")
