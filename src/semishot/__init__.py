"""Few-shot classification with unlabeled data: the methods of Ren et al. (ICLR 2018), as fleets."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from semishot.estimator.classifier import PrototypeClassifier
    from semishot.estimator.next_labels import next_to_label

__version__ = "0.3.0"
__all__ = ["PrototypeClassifier", "__version__", "next_to_label"]


def __getattr__(name: str) -> object:
    """Names of the estimator are imported on first use: scikit-learn takes a second to load."""
    if name == "PrototypeClassifier":
        from semishot.estimator.classifier import PrototypeClassifier

        return PrototypeClassifier
    if name == "next_to_label":
        from semishot.estimator.next_labels import next_to_label

        return next_to_label
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
