"""Soft k-Means (section 3.1.1, Eq. 4): each unlabeled example is shared out by class probability."""

from torch import Tensor, nn

from semishot.prototypes import class_log_probs


class Refiner(nn.Module):
    def __init__(self, runs: int | None = None, detach_assignments: bool = False) -> None:
        """`detach_assignments`: no gradient through the assignments (the authors' code)."""
        super().__init__()
        self.detach_assignments = detach_assignments

    def forward(self, unlabeled: Tensor, prototypes: Tensor) -> Tensor:
        assignments = class_log_probs(unlabeled, prototypes).exp()  # (..., U, N)  Eq. 4
        return assignments.detach() if self.detach_assignments else assignments
