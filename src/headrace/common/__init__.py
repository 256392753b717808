"""What every other room may use: clock, configuration, errors, ids, background work. Imports nothing of ours."""
