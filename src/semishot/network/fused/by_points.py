"""The losses of a fleet's episodes from the inner products of their points: any method, any number of steps.

`episode.py` needs fewer kernels, for one step of the paper's methods.
"""

from dataclasses import dataclass
from typing import Any

import torch
import triton
from torch import Tensor
from torch.autograd.function import once_differentiable

from semishot.network.fused import points, steps, walks
from semishot.network.fused.episode import LEAST, MOST_ROWS, WARPS, Sizes
from semishot.network.fused.launching import launch
from semishot.network.fused.layout import channels_last
from semishot.network.fused.methods import Methods
from semishot.network.sphere import MOMENTUM, Sphere
from semishot.refine import prwn

TILE = points.TILE.value
STAGES = 2
"""Tiles loaded ahead in the largest products: three would need more shared memory than many GPUs have."""
MOST_POINTS = 1024
"""Of a run: a table of all pairs of them is 4 MB."""


@dataclass(frozen=True)
class Plan:
    """What is computed, beside the sizes of the episode."""

    sizes: Sizes
    steps: int
    """Refinement steps; 0 without a method."""
    initial_loss: float
    """As in `ProtoNet`."""
    members: int
    """Unlabeled images of the classes; those after them are distractors."""
    parts: int
    """`Methods.parts`."""
    by_rows: bool
    scored: bool
    walks: bool

    @property
    def images(self) -> int:
        sizes = self.sizes
        return sizes.way * sizes.shot + sizes.unlabeled + sizes.queries

    @property
    def points(self) -> int:
        """M."""
        return int(triton.cdiv(self.images + 1, TILE)) * TILE

    @property
    def width(self) -> int:
        """U, rounded up to a multiple of TILE."""
        return int(triton.cdiv(self.sizes.unlabeled, TILE)) * TILE

    @property
    def classes(self) -> int:
        """N, with the other cluster if queries are scored over it, rounded up."""
        return max(LEAST, int(triton.next_power_of_2(self.sizes.way + self.scored)))

    @property
    def rows(self) -> int:
        """UT."""
        rounded = self.sizes.rounded[1]
        return min(rounded, MOST_ROWS) if self.by_rows else rounded

    @property
    def warps(self) -> int:
        """Of a program that holds TILE points of a table, four numbers to a thread."""
        return min(16, max(4, self.classes * TILE // 128))

    @property
    def row_warps(self) -> int:
        """Of a program that holds UT rows of a table."""
        return min(16, max(4, self.classes * self.rows // 128))

    @property
    def fits(self) -> bool:
        """Whether programs can hold the tables."""
        whole = self.by_rows or self.rows <= 256
        return self.classes <= 64 and self.points <= MOST_POINTS and whole


class LossesByPoints(torch.autograd.Function):
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
        work: Work = ctx.work
        maps_grad, slow_grad, grads = work.back(grad.contiguous())
        wanted = (g if g.is_floating_point() else None for g in grads)
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
        self.weights_of_walks = settings if methods.walks is None else methods.walks
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
        self.seen = self.empty(*square)
        grid = self.runs, self.tiles, self.tiles
        launch(points.inner_kernel, grid)(
            self.maps, self.centers, self.seen, self.runs, self.places, plan.images, plan.points,
            *tail, num_warps=WARPS, num_stages=STAGES,
        )  # fmt: skip
        self.inner = self.seen
        if self.sphere:
            self.inner = self.empty(*square)
            launch(points.sphere_kernel, grid)(self.seen, self.slow, self.inner, plan.points)

    def refine(self) -> Tensor:
        """Prototypes step by step, then the loss (R,)."""
        plan, sizes = self.plan, self.plan.sizes
        shape = sizes.way, sizes.shot, sizes.unlabeled
        for step in range(plan.steps + 1):
            if step:
                launch(steps.weights_kernel, (self.runs,))(
                    self.inner, self.assigned[step - 1], self.products[step - 1], self.settings,
                    self.parameters, self.distractors, self.weights, *shape, plan.members,
                    plan.images, plan.points, plan.classes, plan.rows, plan.parts, self.present,
                    plan.scored, num_warps=plan.row_warps,
                )  # fmt: skip
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
            self.walk(losses)
        return losses

    def walk(self, losses: Tensor) -> None:
        """Add the loss of random walks."""
        plan, sizes = self.plan, self.plan.sizes
        support, width = sizes.way * sizes.shot, plan.width
        one, across = (self.runs,), (self.runs, width // TILE)
        options = {"num_warps": plan.warps, "num_stages": STAGES}
        table = self.runs, plan.classes, width
        self.between, self.there = self.empty(self.runs, width, width), self.empty(*table)
        self.backs, self.back_grads = (self.empty(prwn.STEPS, *table) for _ in range(2))
        self.home_grads = self.empty(prwn.STEPS, *table[:2])
        visits = self.empty(self.runs)
        launch(walks.between_kernel, across)(
            self.inner, self.between, support, sizes.unlabeled, plan.points, width, num_warps=WARPS
        )
        launch(walks.start_kernel, one)(
            self.inner, self.assigned[0], self.products[0], self.there, self.backs[0], visits,
            support, sizes.way, sizes.unlabeled, plan.points, width, plan.classes,
            num_warps=plan.warps,
        )  # fmt: skip
        for step in range(prwn.STEPS - 1):
            launch(walks.step_kernel, across)(
                self.between, self.backs[step], self.backs[step + 1], width, plan.classes,
                **options,
            )  # fmt: skip
        launch(walks.home_kernel, one)(
            self.there, self.backs, visits, self.weights_of_walks, losses, self.home_grads,
            self.back_grads[-1], sizes.way, self.runs, width, plan.classes, num_warps=plan.warps,
        )  # fmt: skip

    def walk_back(self) -> Tensor:
        """Add the gradients of random walks; those of the similarities between images are returned."""
        plan, sizes = self.plan, self.plan.sizes
        support, width = sizes.way * sizes.shot, plan.width
        across = self.runs, width // TILE
        options = {"num_warps": plan.warps, "num_stages": STAGES}
        for step in reversed(range(prwn.STEPS - 1)):
            launch(walks.step_backward_kernel, across)(
                self.between, self.there, self.home_grads[step], self.back_grads[step + 1],
                self.back_grads[step], width, plan.classes, **options,
            )  # fmt: skip
        between_grads = torch.empty_like(self.between)
        launch(walks.between_backward_kernel, across)(
            self.between, self.backs, self.back_grads, between_grads, self.own_grads, support,
            sizes.unlabeled, self.runs, plan.points, width, plan.classes, num_warps=WARPS,
            num_stages=STAGES,
        )  # fmt: skip
        launch(walks.start_backward_kernel, (self.runs,))(
            self.inner, self.assigned[0], self.products[0], self.there, self.backs,
            self.back_grads[0], self.home_grads, self.weights_of_walks, self.product_grads[0],
            self.square_grads[0], self.own_grads, support, sizes.way, sizes.unlabeled, self.runs,
            plan.points, width, plan.classes, num_warps=plan.warps,
        )  # fmt: skip
        return between_grads

    def add_loss(self, losses: Tensor, step: int, share: float, add: bool) -> None:
        plan, sizes = self.plan, self.plan.sizes
        launch(steps.loss_kernel, (self.runs,))(
            self.inner, self.assigned[step], self.products[step], self.slow, self.settings,
            self.parameters, losses, self.product_grads[step], self.square_grads[step],
            self.own_grads, self.origin_grads, self.radius_grads, self.score_grads, share,
            sizes.way, sizes.shot, sizes.unlabeled, sizes.queries, plan.images, plan.points,
            plan.classes, MOST_ROWS, self.sphere, plan.scored, add, num_warps=plan.warps,
        )  # fmt: skip

    def back(self, loss_grads: Tensor) -> tuple[Tensor, Tensor, list[Tensor]]:
        """The gradients of the maps, the sphere's parameter, and the refiners' parameters."""
        plan, sizes = self.plan, self.plan.sizes
        shape = sizes.way, sizes.shot, sizes.unlabeled
        grads = [torch.empty_like(parameter) for parameter in self.parameters]
        weight_grads = self.weights  # no longer needed
        for step in range(plan.steps, 0, -1):
            launch(steps.weight_grads_kernel, (self.runs, triton.cdiv(sizes.unlabeled, TILE)))(
                self.inner, self.assigned[step], self.products[step], self.totals[step],
                self.product_grads[step], self.square_grads[step], weight_grads, *shape,
                plan.points, plan.classes, num_warps=plan.warps, num_stages=STAGES,
            )  # fmt: skip
            launch(steps.weights_backward_kernel, (self.runs,))(
                self.inner, self.assigned[step - 1], self.products[step - 1], self.settings,
                self.parameters, self.distractors, weight_grads, loss_grads,
                self.product_grads[step - 1], self.square_grads[step - 1], self.own_grads,
                self.origin_grads, self.score_grads, tuple(grads), *shape, plan.members,
                plan.images, plan.points, plan.classes, plan.rows, plan.parts, self.present,
                plan.scored, step == 1 and plan.initial_loss > 0, step < plan.steps,
                num_warps=plan.row_warps,
            )  # fmt: skip
        between_grads = self.walk_back() if plan.walks else self.inner  # not read
        both, along = torch.empty_like(self.inner), self.empty(self.runs, self.tiles, plan.points)
        launch(steps.both_kernel, (self.runs, self.tiles, self.tiles))(
            self.inner, self.assigned, self.product_grads, self.square_grads, self.own_grads,
            self.origin_grads, between_grads, both, along, self.runs, plan.steps + 1,
            sizes.way * sizes.shot, sizes.unlabeled, plan.images, plan.points, plan.width,
            plan.classes, self.sphere, plan.walks, num_warps=WARPS, num_stages=STAGES,
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


def plan_of(
    methods: Methods, sizes: Sizes, steps: int, initial_loss: float, members: int
) -> Plan | None:
    """None if these kernels do not know a method, or cannot hold the tables."""
    if methods.settings is None or methods.on_directions:
        return None
    if methods.kinds == {0} or not sizes.unlabeled:
        steps = 0
    if methods.scored and steps != 1:
        return None
    walking = methods.walks is not None and sizes.unlabeled > 0
    if walking and sizes.unlabeled == 1:
        return None
    known = methods.parts, methods.by_rows, methods.scored
    plan = Plan(sizes, steps, initial_loss, members, *known, walking)
    return plan if plan.fits else None


def losses_by_points(
    maps: Tensor,
    methods: Methods,
    plan: Plan,
    sphere: Sphere | None = None,
    distractors: Tensor | None = None,
) -> Tensor:
    """The last feature maps of a fleet's episodes, (B, R * F, H, W) in float32 -> losses (R,)."""
    slow, center = (None, None) if sphere is None else (sphere.slow_log_scale, sphere.center)
    out: Tensor = LossesByPoints.apply(  # type: ignore[no-untyped-call]
        maps, slow, center, distractors, methods, plan, *methods.parameters()
    )
    return out
