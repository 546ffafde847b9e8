"""The weights of the runs of a fleet whose method is `oslo`, by `direction_kernels.py`."""

from typing import TYPE_CHECKING
from weakref import proxy

import torch
from torch import Tensor

from semishot.network.fused import direction_kernels, steps
from semishot.network.fused.launching import launch
from semishot.network.fused.plan import ROWS_AT_ONCE, STAGES, TILE, WARPS
from semishot.refine import oslo

if TYPE_CHECKING:
    from semishot.network.fused.episode import Work


class Directions:
    """The tensors of `runs` runs from the `first`, beside those of `Work`."""

    def __init__(self, work: "Work", first: int, runs: int, refiner: oslo.Refiner) -> None:
        self.work: Work = proxy(work)  # which holds this: a cycle would keep tensors for long
        plan, self.refiner, self.runs = work.plan, refiner, runs
        self.own = slice(first, first + runs)
        self.examples = plan.sizes.way * plan.sizes.shot + plan.sizes.unlabeled
        tables = refiner.steps, runs, plan.classes, plan.points
        self.shares, self.assigned, self.products = (work.empty(*tables) for _ in range(3))
        self.totals, self.weights = work.empty(*tables[:3]), work.empty(*tables[1:])
        self.inner, self.seen = work.inner[self.own], work.empty(runs, plan.points, plan.points)
        self.means = work.empty(runs, plan.points)
        launch(direction_kernels.means_kernel, (runs, work.tiles))(
            self.inner, self.means, self.examples, plan.points
        )
        launch(direction_kernels.directions_kernel, (runs, work.tiles, work.tiles))(
            self.inner, self.means, self.seen, self.examples, plan.points
        )
        for step in range(refiner.steps):
            if step:
                self.share(step - 1, self.weights, present=False)
            launch(steps.products_kernel, (runs, work.tiles))(
                self.seen, self.weights, self.assigned[step], self.products[step],
                self.totals[step], *self.shape[:3], plan.images, plan.points, step == 0, False,
                plan.classes, num_warps=plan.warps, num_stages=STAGES,
            )  # fmt: skip

    @property
    def shape(self) -> tuple[int, int, int, int]:
        sizes = self.work.plan.sizes
        return sizes.way, sizes.shot, sizes.unlabeled, self.work.plan.members

    @property
    def settings(self) -> tuple[float, float, int, int, int]:
        plan, own = self.work.plan, self.refiner
        temperatures = float(own.distractor_temperature), float(own.class_temperature)
        return *temperatures, plan.points, plan.classes, ROWS_AT_ONCE

    def share(self, step: int, weights: Tensor, present: bool) -> None:
        before = self.shares[max(0, step - 1)]
        launch(direction_kernels.shares_kernel, (self.runs,))(
            self.assigned[step], self.products[step], before, self.shares[step],
            self.distractors, weights, *self.shape, *self.settings, step == 0, present,
            num_warps=self.work.plan.warps,
        )  # fmt: skip

    @property
    def distractors(self) -> Tensor:
        return self.work.distractors[self.own]

    def weigh(self) -> None:
        """The weights of these runs."""
        self.share(self.refiner.steps - 1, self.work.weights[self.own], self.work.present)

    def back(self, weight_grads: Tensor, direction_grads: Tensor) -> None:
        """From the weights (R, N, M) to the inner products (R, M, M), of these runs."""
        work, plan, last = self.work, self.work.plan, self.refiner.steps - 1
        product_grads, share_grads = (torch.empty_like(self.products) for _ in range(2))
        square_grads = torch.empty_like(self.totals)
        grads = weight_grads[self.own]
        for step in range(last, -1, -1):
            launch(direction_kernels.shares_backward_kernel, (self.runs,))(
                self.assigned[step], self.products[step], self.shares[max(0, step - 1)],
                self.distractors, grads, share_grads[min(last, step + 1)], product_grads[step],
                square_grads[step], share_grads[step], *self.shape, *self.settings, step == 0,
                step == last, work.present and step == last, num_warps=plan.warps,
            )  # fmt: skip
            if step:
                grads = self.weights
                launch(steps.weight_grads_kernel, (self.runs, plan.width // TILE))(
                    self.seen, self.assigned[step], self.products[step], self.totals[step],
                    product_grads[step], square_grads[step], grads, *self.shape[:3],
                    plan.points, plan.classes, num_warps=plan.warps, num_stages=STAGES,
                )  # fmt: skip
        both, along = torch.empty_like(self.seen), work.empty(self.runs, work.tiles, plan.points)
        nothing, grid = torch.zeros_like(self.means), (self.runs, work.tiles, work.tiles)
        launch(steps.both_kernel, grid)(
            self.seen, self.assigned, product_grads, square_grads, nothing, nothing, self.seen,
            self.seen, both, along, self.runs, self.refiner.steps, self.examples, 0, plan.images,
            plan.points, plan.width, plan.classes, True, False, False, num_warps=WARPS,
            num_stages=STAGES,
        )  # fmt: skip
        sums = torch.empty_like(self.means)
        launch(direction_kernels.sums_kernel, grid[:2])(
            self.inner, self.means, both, along, sums, self.examples, plan.points
        )
        launch(direction_kernels.directions_backward_kernel, grid)(
            self.inner, self.means, both, along, sums, direction_grads[self.own], self.examples,
            plan.points,
        )  # fmt: skip
