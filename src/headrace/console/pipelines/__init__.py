"""Running pipelines: their published status, and their dead letters."""
