"""Which examples to label next: the public import path of `semishot.estimator.next_labels`."""

from semishot.estimator.next_labels import next_to_label

__all__ = ["next_to_label"]
