from hypothesis import settings

# On a shared machine an example may take longer than Hypothesis's deadline.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")
