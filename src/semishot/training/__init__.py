"""Fleets: configuration, the loop, checkpoints, log, validation, evaluation, records."""
