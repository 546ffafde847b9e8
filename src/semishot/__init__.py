"""Few-shot classification with unlabeled data: the methods of Ren et al. (ICLR 2018), as fleets."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from semishot.estimator.classifier import PrototypeClassifier

__version__ = "0.2.0"
__all__ = ["PrototypeClassifier", "__version__"]


def __getattr__(name: str) -> object:
    """The estimator is loaded when it is asked for: torch and scikit-learn take seconds."""
    if name == "PrototypeClassifier":
        from semishot.estimator.classifier import PrototypeClassifier

        return PrototypeClassifier
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
