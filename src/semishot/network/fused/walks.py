"""The loss of random walks for the runs of a fleet that have it, by `walk_kernels.py`."""

from typing import TYPE_CHECKING
from weakref import proxy

import torch
from torch import Tensor

from semishot.network.fused import walk_kernels
from semishot.network.fused.launching import launch
from semishot.network.fused.plan import STAGES, TILE, WARPS
from semishot.refine import prwn

if TYPE_CHECKING:
    from semishot.network.fused.episode import Work


class Walks:
    """The tensors of the walks, beside those of `Work`."""

    def __init__(self, work: "Work") -> None:
        plan, runs = work.plan, work.runs
        assert work.methods.walks is not None
        self.work: Work = proxy(work)  # which holds this: a cycle would keep tensors for long
        self.weights = work.methods.walks
        self.support, self.across = plan.sizes.way * plan.sizes.shot, (runs, plan.width // TILE)
        table = runs, plan.classes, plan.width
        self.between, self.there = work.empty(runs, plan.width, plan.width), work.empty(*table)
        self.backs, self.back_grads = (work.empty(prwn.STEPS, *table) for _ in range(2))
        self.home_grads = work.empty(prwn.STEPS, *table[:2])

    def add_loss(self, losses: Tensor) -> None:
        """Of the walks, to losses (R,)."""
        work, plan, sizes = self.work, self.work.plan, self.work.plan.sizes
        visits = work.empty(work.runs)
        launch(walk_kernels.between_kernel, self.across)(
            work.inner, self.between, self.support, sizes.unlabeled, plan.points, plan.width,
            num_warps=WARPS,
        )  # fmt: skip
        launch(walk_kernels.start_kernel, (work.runs,))(
            work.inner, work.assigned[0], work.products[0], self.there, self.backs[0], visits,
            self.support, sizes.way, sizes.unlabeled, plan.points, plan.width, plan.classes,
            num_warps=plan.warps,
        )  # fmt: skip
        for step in range(prwn.STEPS - 1):
            launch(walk_kernels.step_kernel, self.across)(
                self.between, self.backs[step], self.backs[step + 1], plan.width, plan.classes,
                num_warps=plan.warps, num_stages=STAGES,
            )  # fmt: skip
        launch(walk_kernels.home_kernel, (work.runs,))(
            self.there, self.backs, visits, self.weights, losses, self.home_grads,
            self.back_grads[-1], sizes.way, work.runs, plan.width, plan.classes,
            num_warps=plan.warps,
        )  # fmt: skip

    def back(self) -> Tensor:
        """Add the gradients of the walks; those of the similarities between images are returned."""
        work, plan, sizes = self.work, self.work.plan, self.work.plan.sizes
        for step in reversed(range(prwn.STEPS - 1)):
            launch(walk_kernels.step_backward_kernel, self.across)(
                self.between, self.there, self.home_grads[step], self.back_grads[step + 1],
                self.back_grads[step], plan.width, plan.classes, num_warps=plan.warps,
                num_stages=STAGES,
            )  # fmt: skip
        between_grads = torch.empty_like(self.between)
        launch(walk_kernels.between_backward_kernel, self.across)(
            self.between, self.backs, self.back_grads, between_grads, work.own_grads,
            self.support, sizes.unlabeled, work.runs, plan.points, plan.width, plan.classes,
            num_warps=max(WARPS, plan.warps), num_stages=1,
        )  # fmt: skip
        launch(walk_kernels.start_backward_kernel, (work.runs,))(
            work.inner, work.assigned[0], work.products[0], self.there, self.backs,
            self.back_grads[0], self.home_grads, self.weights, work.product_grads[0],
            work.square_grads[0], work.own_grads, self.support, sizes.way, sizes.unlabeled,
            work.runs, plan.points, plan.width, plan.classes, num_warps=plan.warps,
        )  # fmt: skip
        return between_grads
