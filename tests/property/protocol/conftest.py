from hypothesis import HealthCheck, settings

# A shared machine may stop for longer than Hypothesis lets an example take.
settings.register_profile("no deadline", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("no deadline")
