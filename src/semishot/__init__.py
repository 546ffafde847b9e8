"""Few-shot classification with unlabeled data: the methods of Ren et al. (ICLR 2018), as fleets."""

__version__ = "0.1.0"
__all__ = ["__version__"]
