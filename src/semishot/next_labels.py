"""Which examples to label next: `semishot.estimator.next_labels` under the path that others rely on."""

from semishot.estimator.next_labels import next_to_label

__all__ = ["next_to_label"]
