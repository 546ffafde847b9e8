"""Soft k-Means (section 3.1.1, Eq. 4): each unlabeled example is shared out by class probability."""

from torch import Tensor, nn

from semishot.prototypes import class_log_probs


class Refiner(nn.Module):
    """Each unlabeled example is shared among the classes by their probabilities (Eq. 4).

    `detach_assignments=True` stops gradients through the assignments, as the authors' code does.
    """

    def __init__(self, runs: int | None = None, detach_assignments: bool = False) -> None:
        super().__init__()
        self.detach_assignments = detach_assignments

    def forward(self, unlabeled: Tensor, prototypes: Tensor) -> Tensor:
        assignments = class_log_probs(unlabeled, prototypes).exp()  # (..., U, N)  Eq. 4
        return assignments.detach() if self.detach_assignments else assignments
