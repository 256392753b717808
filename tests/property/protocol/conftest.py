from hypothesis import HealthCheck, settings

# A busy machine may need longer than Hypothesis allows for an example.
settings.register_profile("no deadline", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("no deadline")
