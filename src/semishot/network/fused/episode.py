"""Prototypes, refinement and the loss of a fleet's episodes, forward and backward, in some ten kernels.

They depend on the images only through the inner products of all points, which are computed once; every step
of every method works on these.
"""

from typing import Any

import torch
import triton
from torch import Tensor
from torch.autograd.function import once_differentiable

from semishot.network.fused import points, scores, steps
from semishot.network.fused.directions import Directions
from semishot.network.fused.launching import launch
from semishot.network.fused.layout import channels_last
from semishot.network.fused.methods import Methods
from semishot.network.fused.plan import ROWS_AT_ONCE, STAGES, TILE, WARPS, Plan
from semishot.network.fused.walks import Walks
from semishot.network.sphere import MOMENTUM, Sphere


class EpisodeLosses(torch.autograd.Function):
    """Maps (B, R * F, H, W), a sphere's parameter, and those of the refiners -> losses (R,)."""

    @staticmethod
    def forward(
        ctx: Any,
        maps: Tensor,
        slow: Tensor | None,
        center: Tensor | None,
        distractors: Tensor | None,
        methods: Methods,
        plan: Plan,
        *parameters: Tensor,
    ) -> Tensor:
        work = Work(channels_last(maps), slow, center, distractors, methods, plan, parameters)
        work.measure()
        losses = work.refine()
        ctx.work = work
        ctx.save_for_backward(work.maps, *parameters)  # checks that nobody changes them
        return losses

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        _ = ctx.saved_tensors
        work: Work | None = ctx.work
        if work is None:
            raise RuntimeError("the gradients of fused losses can be computed only once")
        ctx.work = None  # its tables are added to
        maps_grad, slow_grad, grads = work.back(grad.contiguous())
        refined = work.plan.steps > 0
        wanted = (g if refined and g.is_floating_point() else None for g in grads)
        return maps_grad, slow_grad if work.sphere else None, None, None, None, None, *wanted


class Work:
    """The tensors of one pass through the kernels."""

    def __init__(
        self,
        maps: Tensor,
        slow: Tensor | None,
        center: Tensor | None,
        distractors: Tensor | None,
        methods: Methods,
        plan: Plan,
        parameters: tuple[Tensor, ...],
    ) -> None:
        settings = methods.settings
        assert settings is not None
        self.maps, self.settings, self.plan, self.parameters = maps, settings, plan, parameters
        self.methods = methods
        self.sphere, self.present = slow is not None, distractors is not None
        self.slow = settings if slow is None else slow  # not read, but a kernel needs some address
        self.center = settings if center is None else center
        self.distractors = settings if distractors is None else distractors
        self.runs = len(settings)
        self.filters = maps.shape[1] // self.runs
        self.places = maps.shape[2] * maps.shape[3]
        self.at_a_time = min(self.filters, points.MOST_FILTERS)
        self.tiles = plan.points // TILE
        count = plan.steps + 1
        tables = count, self.runs, plan.classes, plan.points
        self.assigned, self.products, self.product_grads = (self.empty(*tables) for _ in range(3))
        self.totals, self.square_grads = (self.empty(*tables[:3]) for _ in range(2))
        self.weights = self.empty(*tables[1:])
        self.own_grads, self.origin_grads = (self.empty(self.runs, plan.points) for _ in range(2))
        self.radius_grads, self.score_grads = (self.empty(self.runs) for _ in range(2))

    def empty(self, *size: int) -> Tensor:
        return torch.empty(size, device=self.maps.device)

    def measure(self) -> None:
        """The inner products of all points."""
        plan, tail = self.plan, (self.filters, self.at_a_time, self.sphere)
        parts = self.places * (self.filters // self.at_a_time)
        self.centers = self.empty(self.runs, self.places, self.filters)
        launch(points.center_kernel, (self.runs, parts))(
            self.maps, self.center, self.centers, MOMENTUM, self.runs, self.places, plan.images,
            *tail,
        )  # fmt: skip
        square = self.runs, plan.points, plan.points
        slices = min(parts, max(1, points.PROGRAMS // (self.runs * self.tiles**2)))
        sums = self.empty(slices, *square)
        grid = self.runs * slices, self.tiles, self.tiles
        launch(points.inner_kernel, grid)(
            self.maps, self.centers, sums, self.runs, self.places, plan.images, plan.points,
            slices, *tail, num_warps=WARPS, num_stages=STAGES,
        )  # fmt: skip
        self.seen = sums.sum(0) if slices > 1 else sums[0]
        self.inner = self.seen
        if self.sphere:
            self.inner = self.empty(*square)
            launch(points.sphere_kernel, (self.runs, *grid[1:]))(
                self.seen, self.slow, self.inner, plan.points
            )

    def refine(self) -> Tensor:
        """Prototypes step by step, then the loss (R,)."""
        plan, sizes = self.plan, self.plan.sizes
        shape = sizes.way, sizes.shot, sizes.unlabeled
        if plan.directions:
            self.directions = [Directions(self, *each) for each in self.methods.on_directions]
        for step in range(plan.steps + 1):
            if step and plan.others:
                launch(steps.weights_kernel, (self.runs,))(
                    self.inner, self.assigned[step - 1], self.products[step - 1], self.settings,
                    self.parameters, self.distractors, self.weights, *shape, plan.members,
                    plan.images, plan.points, plan.classes, plan.rows, plan.parts, self.present,
                    plan.scored, num_warps=plan.row_warps,
                )  # fmt: skip
            if step and plan.directions:
                for each in self.directions:
                    each.weigh()
            launch(steps.products_kernel, (self.runs, self.tiles))(
                self.inner, self.weights, self.assigned[step], self.products[step],
                self.totals[step], *shape, plan.images, plan.points, step == 0, plan.scored,
                plan.classes, num_warps=plan.warps, num_stages=STAGES,
            )  # fmt: skip
        losses = self.empty(self.runs)
        if plan.steps:
            self.add_loss(losses, plan.steps, 1.0, add=False)
        if plan.initial_loss or not plan.steps:
            share = plan.initial_loss if plan.steps else 1 + plan.initial_loss
            self.add_loss(losses, 0, share, add=plan.steps > 0)
        if plan.walks:
            self.walks = Walks(self)
            self.walks.add_loss(losses)
        return losses

    def add_loss(self, losses: Tensor, step: int, share: float, add: bool) -> None:
        plan, sizes = self.plan, self.plan.sizes
        scored = plan.scored and not add  # the first prototypes' loss is that of no method
        launch(scores.loss_kernel, (self.runs,))(
            self.inner, self.assigned[step], self.products[step], self.slow, self.settings,
            self.parameters, losses, self.product_grads[step], self.square_grads[step],
            self.own_grads, self.origin_grads, self.radius_grads, self.score_grads, share,
            sizes.way, sizes.shot, sizes.unlabeled, sizes.queries, plan.points,
            plan.classes, ROWS_AT_ONCE, self.sphere, scored, add, num_warps=plan.warps,
        )  # fmt: skip

    def back(self, loss_grads: Tensor) -> tuple[Tensor, Tensor, list[Tensor]]:
        """The gradients of the maps, the sphere's parameter, and the refiners' parameters."""
        plan, sizes = self.plan, self.plan.sizes
        shape = sizes.way, sizes.shot, sizes.unlabeled
        grads = [torch.empty_like(parameter) for parameter in self.parameters]
        weight_grads = self.weights  # no longer needed
        direction_grads = self.inner  # not read
        for step in range(plan.steps, 0, -1):
            launch(steps.weight_grads_kernel, (self.runs, triton.cdiv(sizes.unlabeled, TILE)))(
                self.inner, self.assigned[step], self.products[step], self.totals[step],
                self.product_grads[step], self.square_grads[step], weight_grads, *shape,
                plan.points, plan.classes, num_warps=plan.warps, num_stages=STAGES,
            )  # fmt: skip
            if plan.directions and step == plan.steps:  # all steps have the same weights
                direction_grads = torch.zeros_like(self.inner)
                for each in self.directions:
                    each.back(weight_grads, direction_grads)
            launch(steps.weights_backward_kernel, (self.runs,))(
                self.inner, self.assigned[step - 1], self.products[step - 1], self.settings,
                self.parameters, self.distractors, weight_grads, loss_grads,
                self.product_grads[step - 1], self.square_grads[step - 1], self.own_grads,
                self.origin_grads, self.score_grads, tuple(grads), *shape, plan.members,
                plan.images, plan.points, plan.classes, plan.rows, plan.parts, self.present,
                plan.scored, step == 1 and plan.initial_loss > 0, step < plan.steps,
                num_warps=plan.row_warps,
            )  # fmt: skip
        between_grads = self.walks.back() if plan.walks else self.inner  # not read
        both, along = torch.empty_like(self.inner), self.empty(self.runs, self.tiles, plan.points)
        launch(steps.both_kernel, (self.runs, self.tiles, self.tiles))(
            self.inner, self.assigned, self.product_grads, self.square_grads, self.own_grads,
            self.origin_grads, between_grads, direction_grads, both, along, self.runs, plan.steps + 1,
            sizes.way * sizes.shot, sizes.unlabeled, plan.images, plan.points, plan.width,
            plan.classes, self.sphere, plan.walks, plan.directions, num_warps=WARPS, num_stages=STAGES,
        )  # fmt: skip
        maps_grad, slow_grad = torch.empty_like(self.maps), self.empty(self.runs)
        parts = self.places * (self.filters // self.at_a_time)
        launch(points.points_backward_kernel, (self.runs, parts, self.tiles))(
            self.maps, self.centers, self.seen, self.slow, both, along, loss_grads,
            self.radius_grads, maps_grad, slow_grad, self.runs, self.places, plan.images,
            plan.points, self.filters, self.at_a_time, self.sphere, num_warps=WARPS,
            num_stages=STAGES,
        )  # fmt: skip
        return maps_grad, slow_grad, grads


def episode_losses(
    maps: Tensor,
    methods: Methods,
    plan: Plan,
    sphere: Sphere | None = None,
    distractors: Tensor | None = None,
) -> Tensor:
    """The last feature maps of a fleet's episodes, (B, R * F, H, W) in float32 -> losses (R,)."""
    slow, center = (None, None) if sphere is None else (sphere.slow_log_scale, sphere.center)
    out: Tensor = EpisodeLosses.apply(  # type: ignore[no-untyped-call]
        maps, slow, center, distractors, methods, plan, *methods.parameters()
    )
    return out
