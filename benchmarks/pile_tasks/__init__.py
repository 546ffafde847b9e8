"""Piles of many kinds of features: where they come from, how a task is drawn, and rivals."""
