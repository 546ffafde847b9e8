"""The parts of `benchmarks/strangers.py`: tasks, rivals, features, figures and tables."""
