"""Two-stage training of photographs as fleets whose runs may differ in every number of the recipe.

Stage 1 classifies the training classes (cosine classifier, rotation loss), stage 2 trains episodes with
distractors through the refinement. Everything is judged on validation classes.

PYTHONPATH=src:experiments python -m second_generation.train DATA JOBS OUT [--serve]

DATA is a prepared pool (test classes are not read), or images.npy with a classes.txt (name and split
in a line); JOBS is a folder of JSON files, written by `second_generation.jobs` and done in the order of their
names. `--serve` waits for more until a file `stop` is there.

Letters: R runs, S label splits, B images of a run in an update, D dimensions, E episodes, N way.
"""

import json
import math
import os
import sys
import time
import traceback
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from semishot.data.episodes import EpisodeShape, Stream, sample_episodes
from semishot.data.pool import ImageClass
from semishot.data.splits import all_labeled, labeled_split
from semishot.network.encoder import BLOCKS, EPSILON, ConvEncoder

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
CUDA = DEVICE.type == "cuda"
FILTERS = 64
DIM = 1600
GROUP = int(os.environ.get("GROUP", "0"))
"""Runs of one grouped convolution; 0 takes all."""
TRAIN_CLASSES, IMAGES = 64, 600
FRACTION = 0.4
PLAIN = (6.0, 8.0, 10.0, 12.0)
"""Scales of soft k-means without a further cluster."""
CLUSTER = {8.0: (0.2, 0.3), 12.0: (0.2, 0.25, 0.3, 0.35, 0.4), 16.0: (0.3, 0.35, 0.4)}
"""Thresholds of N + 1 clusters, by scale."""
STEPS = (0, 1, 2, 3, 5, 10)


# data


class Data:
    def __init__(self, folder: Path) -> None:
        if (folder / "pool.json").exists():  # as `semishot data prepare mini-imagenet` leaves it
            rows = json.loads((folder / "pool.json").read_text())["classes"]
            held = [(row[0], row[2]) for row in rows if row[2] != "test"]
        else:
            held = [line.split() for line in (folder / "classes.txt").read_text().splitlines()]
        self.classes = [
            ImageClass(name, name, split, IMAGES * i, IMAGES)
            for i, (name, split) in enumerate(held)
        ]
        images = np.load(folder / "images.npy", mmap_mode="c")[: IMAGES * len(held)]
        self.images = torch.from_numpy(np.array(images) if CUDA else images).to(DEVICE)
        self.train = [c for c in self.classes if c.split == "train"]
        self.val = [c for c in self.classes if c.split == "val"]
        self.orders: dict[int, tuple[Tensor, Tensor]] = {}
        self.episodes: dict[tuple[int, int, int], Tensor] = {}

    def order(self, split: int) -> tuple[Tensor, Tensor]:
        """Labeled (64, 240) and unlabeled (64, 360) images of the training classes."""
        if split not in self.orders:
            parts = labeled_split(self.train, FRACTION, split)
            order = torch.from_numpy(parts.order).view(len(self.train), IMAGES).to(DEVICE)
            count = int(parts.labeled[0])
            self.orders[split] = order[:, :count].contiguous(), order[:, count:].contiguous()
        return self.orders[split]

    def val_episodes(self, split: int, shot: int, episodes: int) -> Tensor:
        """(E, P) rows among the validation images: support, unlabeled with distractors, query."""
        key = split, shot, episodes
        if key not in self.episodes:
            shape = EpisodeShape(way=5, shot=shot, query=20, unlabeled=20, distractors=5)
            drawn = sample_episodes(all_labeled(self.val), shape, Stream(split, "val"), 0, episodes)
            self.episodes[key] = torch.from_numpy(drawn.images - self.val[0].start).to(DEVICE)
        return self.episodes[key]


# the fleet: all numbers of a run in one row of one tensor


def layout(stage: int) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {}
    for b in range(BLOCKS):
        shapes[f"w{b}"] = (FILTERS, 3 if b == 0 else FILTERS, 3, 3)
        shapes[f"g{b}"] = (FILTERS,)
        shapes[f"b{b}"] = (FILTERS,)
    shapes["head"] = (TRAIN_CLASSES, DIM)
    if stage == 1:
        shapes["rotation"] = (4, DIM)
        shapes["joint"] = (4 * TRAIN_CLASSES, DIM)
        shapes["scalars"] = (2,)  # log scales of the two heads
    else:
        shapes["scalars"] = (4,)  # log assignment scale, log query scale, threshold, log head scale
    return shapes


class Fleet:
    def __init__(self, stage: int, runs: int, group: int) -> None:
        self.stage, self.runs, self.group = stage, runs, group
        self.shapes = layout(stage)
        self.sizes = [math.prod(shape) for shape in self.shapes.values()]
        self.flat = torch.zeros(runs, sum(self.sizes), device=DEVICE, requires_grad=True)
        self.running_mean = torch.zeros(runs, DIM, device=DEVICE)
        self.encoders = []
        for first in range(0, runs, group):
            encoder = ConvEncoder(3, FILTERS, min(group, runs - first)).to(DEVICE)
            encoder.fused = CUDA
            del encoder.weights, encoder.scales, encoder.shifts
            self.encoders.append(encoder)

    def views(self, flat: Tensor | None = None) -> dict[str, Tensor]:
        parts = (self.flat if flat is None else flat).split(self.sizes, 1)
        named = zip(self.shapes.items(), parts, strict=True)
        return {name: part.reshape(self.runs, *shape).contiguous() for (name, shape), part in named}

    def embed(self, views: dict[str, Tensor], images: Tensor) -> Tensor:
        """uint8 (R, B, C, H, W) -> (R, B, D)."""
        out, first = [], 0
        for encoder in self.encoders:
            part = slice(first, first + encoder.runs)
            encoder.weights = [views[f"w{b}"][part] for b in range(BLOCKS)]
            encoder.scales = [views[f"g{b}"][part] for b in range(BLOCKS)]
            encoder.shifts = [views[f"b{b}"][part] for b in range(BLOCKS)]
            out.append(encoder(images[part]))
            first += encoder.runs
        return torch.cat(out)

    def train(self, yes: bool) -> None:
        for encoder in self.encoders:
            encoder.train(yes)

    def set_momentum(self, momentum: float) -> None:
        for encoder in self.encoders:
            encoder.momentum = momentum

    def buffers(self) -> Tensor:
        """(R, 8, F): the moving averages of batch norm."""
        names = [f"{kind}{b}" for b in range(BLOCKS) for kind in ("mean", "var")]
        parts = [torch.stack([e.get_buffer(n) for n in names], 1) for e in self.encoders]
        return torch.cat(parts)

    @torch.no_grad()
    def set_buffers(self, values: Tensor) -> None:
        names = [f"{kind}{b}" for b in range(BLOCKS) for kind in ("mean", "var")]
        first = 0
        for encoder in self.encoders:
            for i, name in enumerate(names):
                encoder.get_buffer(name).copy_(values[first : first + encoder.runs, i])
            first += encoder.runs

    @torch.no_grad()
    def begin(self, seeds: list[int]) -> None:
        for run, seed in enumerate(seeds):
            generator, parts = torch.Generator().manual_seed(1000 + seed), []
            for name, shape in self.shapes.items():
                if name[0] == "w":
                    std = (3 * math.prod(shape[1:])) ** -0.5
                    value = torch.randn(shape, generator=generator) * std
                elif name in ("head", "rotation", "joint"):
                    value = torch.randn(shape, generator=generator) * 0.02
                elif name[0] == "g":
                    value = torch.ones(shape)
                elif name == "scalars":
                    value = torch.full(shape, math.log(10.0))
                else:
                    value = torch.zeros(shape)
                parts.append(value.flatten())
            self.flat[run] = torch.cat(parts).to(DEVICE)


def column(runs: list[dict], name: str, default: float) -> Tensor:
    return torch.tensor([float(r.get(name, default)) for r in runs], device=DEVICE)


# images moved and turned


def crops(low: Tensor, shape: tuple[int, ...], draws: Tensor) -> Tensor:
    """(R, B, 2, 3): a square of `low` (R) to all of the area, mirrored half of the time.

    `draws` are uniforms (R, B, 4)."""
    u, x, y, m = draws.unbind(-1)
    side = (1 - (1 - low[:, None]) * u).sqrt()
    sign = torch.where(m < 0.5, -1.0, 1.0)
    zero = torch.zeros_like(side)
    first = torch.stack([side * sign, zero, (1 - side) * (2 * x - 1)], -1)
    second = torch.stack([zero, side, (1 - side) * (2 * y - 1)], -1)
    return torch.stack([first, second], -2)


TURNS = torch.tensor([[[1.0, 0], [0, 1]], [[0, -1], [1, 0]], [[-1, 0], [0, -1]], [[0, 1], [-1, 0]]])


def warp(images: Tensor, maps: Tensor, color: Tensor | None) -> Tensor:
    flat = images.flatten(0, 1).float()
    grid = F.affine_grid(maps.flatten(0, 1), list(flat.shape), align_corners=False)
    moved = F.grid_sample(flat, grid, padding_mode="reflection", align_corners=False)
    if color is not None:  # (R,) strength: gains by image and channel, and an offset
        r, b = images.shape[:2]
        u = 2 * torch.rand(r, b, 5, device=DEVICE) - 1
        gain = 1 + color[:, None, None] * (u[..., :1] + 0.5 * u[..., 1:4])
        offset = 64 * color[:, None, None] * u[..., 4:]
        moved = (moved - 128) * gain.flatten(0, 1)[..., None, None] + 128
        moved = (moved + offset.flatten(0, 1)[..., None, None]).clamp(0, 255)
    return moved.round().to(torch.uint8).view_as(images)


# one update, captured


def unit(x: Tensor) -> Tensor:
    return x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-6)


class Optimizer:
    """SGD with Nesterov momentum, or Adam, with a rate and a decay for each run."""

    def __init__(
        self, fleet: Fleet, kind: str, rate: Tensor, decay: Tensor, steps: int, ema: float
    ):
        self.fleet, self.kind, self.rate, self.decay, self.steps = fleet, kind, rate, decay, steps
        self.step = torch.zeros((), device=DEVICE)
        self.one = torch.zeros_like(fleet.flat, requires_grad=False)
        self.two = torch.zeros_like(self.one) if kind == "adam" else None
        self.ema = fleet.flat.detach().clone()
        self.ema_decay = ema
        names = list(fleet.shapes)
        decayed = [name[0] == "w" or name in ("head", "rotation", "joint") for name in names]
        if kind == "sgd":
            decayed = [name != "scalars" for name in names]
        of = zip(decayed, fleet.sizes, strict=True)
        self.decayed = torch.cat([torch.full((n,), float(d)) for d, n in of]).to(DEVICE)
        speed = [10.0 if name == "scalars" and kind == "adam" else 1.0 for name in names]
        of = zip(speed, fleet.sizes, strict=True)
        self.speed = torch.cat([torch.full((n,), s) for s, n in of]).to(DEVICE)

    @torch.no_grad()
    def update(self, grad: Tensor) -> None:
        flat = self.fleet.flat
        rate = self.rate * 0.5 * (1 + torch.cos(math.pi * self.step / self.steps))
        rate = rate[:, None] * self.speed
        if self.kind == "sgd":
            grad = grad + (self.decay[:, None] * self.decayed) * flat
            self.one.mul_(0.9).add_(grad)
            flat.sub_(rate * (grad + 0.9 * self.one))
        else:
            t = self.step + 1
            self.one.lerp_(grad, 0.1)
            self.two.lerp_(grad * grad, 0.001)
            change = (self.one / (1 - 0.9**t)) / ((self.two / (1 - 0.999**t)).sqrt() + 1e-8)
            flat.sub_(rate * (change + (self.decay[:, None] * self.decayed) * flat))
        self.ema.lerp_(flat, 1 - self.ema_decay)
        self.step.add_(1)


def run_steps(fleet: Fleet, optimizer: Optimizer, loss_of, steps: int) -> tuple[list[float], float]:
    """Replays one captured update; the last losses by run, and seconds without the capture."""
    losses = torch.zeros(fleet.runs, device=DEVICE)

    def update() -> None:
        loss = loss_of()
        (grad,) = torch.autograd.grad(loss.sum(), fleet.flat)
        optimizer.update(grad)
        losses.lerp_(loss.detach(), 0.02)

    fleet.train(True)
    if not CUDA:
        begun = time.monotonic()
        for _ in range(steps):
            update()
        return losses.tolist(), time.monotonic() - begun
    stream = torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    before = [t.detach().clone() for t in (fleet.flat, fleet.buffers(), fleet.running_mean)]
    with torch.cuda.stream(stream):
        for _ in range(2):
            update()
        with torch.no_grad():
            fleet.flat.copy_(before[0])
            fleet.set_buffers(before[1])
            fleet.running_mean.copy_(before[2])
            optimizer.one.zero_()
            optimizer.step.zero_()
            optimizer.ema.copy_(before[0])
            if optimizer.two is not None:
                optimizer.two.zero_()
        with torch.cuda.graph(graph, stream=stream):
            update()
        torch.cuda.synchronize()
        begun = time.monotonic()
        for step in range(steps):
            graph.replay()
            if step % 200 == 199:
                stream.synchronize()
        stream.synchronize()
    seconds = time.monotonic() - begun
    del graph
    return losses.tolist(), seconds


# stage 1


def stage1(
    job: dict, data: Data, states: dict, soft: dict[str, Tensor]
) -> tuple[Fleet, float, float]:
    runs = job["runs"]
    splits = sorted({r["split"] for r in runs})
    of_split = torch.tensor([splits.index(r["split"]) for r in runs], device=DEVICE)
    labeled = torch.stack([data.order(s)[0] for s in splits])  # (S, 64, 240)
    unlabeled = torch.stack([data.order(s)[1] for s in splits])
    labeled, unlabeled = labeled.flatten(1), unlabeled.flatten(1)  # (S, 15360), (S, 23040)
    fleet = Fleet(1, len(runs), job.get("group", GROUP or len(runs)))
    fleet.begin([r.get("seed", r["split"]) for r in runs])
    nl = job.get("labeled", 128)
    ne = (
        3 * nl // 4
    )  # other images, each in four rotations: as many as three rotations of the first
    low = column(runs, "crop", 0.8)
    color = column(runs, "color", 0.0)
    color = color if bool(color.any()) else None
    w_rotation = column(runs, "rotation", 1.0)
    w_turned = column(runs, "turned", 0.0)  # class loss of the turned copies
    w_unlabeled = column(runs, "soft_unlabeled", 0.0)
    alpha = column(runs, "alpha", 0.0)
    centered = column(runs, "centered", 0.0)
    w_joint = column(runs, "joint", 0.0)  # one class for each class and rotation
    joining = bool(w_joint.any())
    other = column(runs, "other", 0.0)  # rotations of other images: 0 none, 1 unlabeled, 2 all
    taught = sorted({f"{r['soft']}/{r['split']}" for r in runs if r.get("soft")})
    table = torch.stack([soft[name] for name in taught]) if taught else None  # (T, 38400, 64)
    of_table = [taught.index(f"{r['soft']}/{r['split']}") if r.get("soft") else 0 for r in runs]
    of_table = torch.tensor(of_table, device=DEVICE)
    turns = TURNS.to(DEVICE)
    same_turn = torch.arange(4, device=DEVICE).repeat_interleave(nl)  # (B,)
    zeros = torch.zeros(nl, dtype=torch.long, device=DEVICE)
    other_turn = torch.cat([zeros, torch.arange(4, device=DEVICE).repeat_interleave(ne)])
    is_other = (other > 0)[:, None]
    turn = torch.where(is_other, other_turn, same_turn)  # (R, B)
    batch = turn.shape[1]
    # weights of the losses, by slot: sums to 1 where a loss is whole
    first = torch.zeros(batch, device=DEVICE)
    first[:nl] = 1 / nl
    copies = torch.zeros(batch, device=DEVICE)
    copies[nl:] = 1 / (batch - nl)
    upright = torch.zeros(batch, device=DEVICE)
    upright[nl : nl + ne] = 1 / ne
    leaning = copies.clone()  # the turned copies of other images
    leaning[: nl + ne] = 0
    leaning = leaning / leaning.sum()
    foreign_class = w_unlabeled[:, None] * (upright + w_turned[:, None] * leaning)
    w_class = first + torch.where(is_other, foreign_class, w_turned[:, None] * copies)
    everyone = torch.full((batch,), 1 / batch, device=DEVICE)
    w_turn = w_rotation[:, None] * torch.where(is_other, copies, everyone)

    def loss_of() -> Tensor:
        s = len(splits)
        a = torch.randint(labeled.shape[1], (s, nl), device=DEVICE)
        a = labeled.gather(1, a)
        b = unlabeled.gather(1, torch.randint(unlabeled.shape[1], (s, ne), device=DEVICE))
        c = torch.randint(labeled.shape[1] + unlabeled.shape[1], (s, ne), device=DEVICE)
        same = torch.cat([a, a, a, a], 1)
        foreign = torch.cat([a, b, b, b, b], 1)
        anyone = torch.cat([a, c, c, c, c], 1)  # image c of the 38,400, labeled or not
        chosen = torch.where(other[:, None] == 2, anyone[of_split], foreign[of_split])
        chosen = torch.where(is_other, chosen, same[of_split])  # (R, B)
        u = torch.rand(s, nl, 4, device=DEVICE)[of_split]
        v = torch.rand(s, ne, 4, device=DEVICE)[of_split]
        draws = torch.where(
            is_other[..., None], torch.cat([u, v, v, v, v], 1), torch.cat([u, u, u, u], 1)
        )
        maps = crops(low, chosen.shape, draws)
        maps = torch.cat([maps[..., :2] @ turns[turn], maps[..., 2:]], -1)
        pixels = warp(data.images[chosen], maps, color)
        views = fleet.views()
        f = fleet.embed(views, pixels)  # (R, B, D)
        fleet.running_mean.lerp_(f.detach().mean(1), 0.05)
        x = unit(f - centered[:, None, None] * fleet.running_mean[:, None])
        scale = views["scalars"].exp()
        logits = scale[:, :1, None] * (x @ unit(views["head"]).mT)
        logp = logits.log_softmax(-1)  # (R, B, 64)
        label = chosen // IMAGES
        hard = -logp.gather(-1, label[..., None])[..., 0]
        if table is not None:
            q = table[of_table[:, None], chosen].float()
            gentle = -(q * logp).sum(-1)
            known = torch.zeros(batch, device=DEVICE)
            known[:nl] = 1
            known = torch.where(is_other, known, torch.ones_like(known))
            share = torch.where(known > 0, alpha[:, None], torch.ones_like(known))
            each = (1 - share) * hard + share * gentle
        else:
            each = hard
        turned = scale[:, 1:, None] * (x @ unit(views["rotation"]).mT)
        right = F.cross_entropy(turned.flatten(0, 1), turn.flatten(), reduction="none").view_as(
            turn
        )
        loss = (w_class * each).sum(1) + (w_turn * right).sum(1)
        if joining:
            logits = scale[:, 1:, None] * (x @ unit(views["joint"]).mT)
            both = F.cross_entropy(
                logits.flatten(0, 1), (4 * label + turn).flatten(), reduction="none"
            ).view_as(turn)
            loss = loss + w_joint * (both * (~is_other)).mean(1)
        return loss

    fleet.set_momentum(job.get("momentum", 0.1))
    optimizer = Optimizer(
        fleet, "sgd", column(runs, "lr", 0.1), column(runs, "decay", 5e-4), job["steps"], 0.999
    )
    losses, seconds = run_steps(fleet, optimizer, loss_of, job["steps"])
    print(f"  stage 1: {seconds:.1f} s, losses {[round(x, 3) for x in losses]}", flush=True)
    keep(job, fleet, states, fleet.flat.detach())
    keep(job, fleet, states, optimizer.ema, "+ema")
    return fleet, seconds, batch * job["steps"] * len(runs) / seconds


def keep(job: dict, fleet: Fleet, states: dict, flat: Tensor, suffix: str = "") -> None:
    views = fleet.views(flat)
    buffers = fleet.buffers()
    for i, run in enumerate(job["runs"]):
        state = {name: value[i].detach().clone() for name, value in views.items()}
        state["buffers"], state["running_mean"] = buffers[i].clone(), fleet.running_mean[i].clone()
        state["split"] = torch.tensor(run["split"])
        state["stage"] = torch.tensor(fleet.stage)
        states[run["id"] + suffix] = state


@torch.no_grad()
def restore(fleet: Fleet, names: list[str], states: dict) -> None:
    held = [states[name] for name in names]
    parts = fleet.flat.detach().split(fleet.sizes, 1)  # not copies
    for name, part in zip(fleet.shapes, parts, strict=True):
        if name != "scalars" and name in held[0]:
            part.copy_(torch.stack([h[name].flatten() for h in held]))
    fleet.set_buffers(torch.stack([h["buffers"] for h in held]))
    fleet.running_mean.copy_(torch.stack([h["running_mean"] for h in held]))


# stage 2


def stage2(job: dict, data: Data, states: dict) -> tuple[Fleet, float, float]:
    runs = job["runs"]
    splits = sorted({r["split"] for r in runs})
    of_split = torch.tensor([splits.index(r["split"]) for r in runs], device=DEVICE)
    labeled = torch.stack([data.order(s)[0] for s in splits])  # (S, 64, 240)
    unlabeled = torch.stack([data.order(s)[1] for s in splits])
    n, k, q = job.get("way", 10), job.get("shot", 5), job.get("query", 5)
    m, h = job.get("unlabeled", 5), job.get("distractors", 10)
    fleet = Fleet(2, len(runs), job.get("group", GROUP or len(runs)))
    restore(fleet, [r["from"] for r in runs], states)
    with torch.no_grad():
        scalars = fleet.flat.detach().split(fleet.sizes, 1)[-1]
        scalars[:, 0] = column(runs, "assign_scale", 10.0).log()
        scalars[:, 1] = column(runs, "query_scale", 10.0).log()
        scalars[:, 2] = column(runs, "threshold", 0.3)
        held = [states[r["from"]] for r in runs]
        scalars[:, 3] = torch.stack([h["scalars"][0 if h["stage"] == 1 else 3] for h in held])
    low = column(runs, "crop", 0.8)
    depth = job.get("depth", 1)
    w_steps = torch.stack(
        [column(runs, f"w{t}", {0: 0.5, depth: 1.0}.get(t, 0.0)) for t in range(depth + 1)], 1
    )  # (R, T + 1)
    w_head = column(runs, "w_head", 0.0)
    w_walk = column(runs, "w_walk", 0.0)
    walking, heading = bool(w_walk.any()), bool(w_head.any())
    share = column(runs, "with_distractors", 0.5)
    one_shot = column(runs, "one_shot", 0.0)
    turning = column(
        runs, "turning", 0.0
    )  # share of an episode's classes that are turned, all images alike
    turns = TURNS.to(DEVICE)
    of_class = torch.cat(
        [
            torch.arange(n, device=DEVICE).repeat_interleave(k),
            torch.arange(n + h, device=DEVICE).repeat_interleave(m),
            torch.arange(n, device=DEVICE).repeat_interleave(q),
        ]
    )  # (B,)
    ns, nu, nq = n * k, (n + h) * m, n * q
    target = torch.arange(n, device=DEVICE).repeat_interleave(q)
    s = len(splits)
    rows = torch.arange(s, device=DEVICE)[:, None]

    def loss_of() -> Tensor:
        drawn = torch.rand(s, TRAIN_CLASSES, device=DEVICE).argsort(-1)[:, : n + h]  # (S, N + H)
        a = torch.rand(s, n, labeled.shape[2], device=DEVICE).argsort(-1)[..., : k + q]
        a = labeled[rows, drawn[:, :n]].gather(-1, a)  # (S, N, K + Q)
        b = torch.rand(s, n + h, unlabeled.shape[2], device=DEVICE).argsort(-1)[..., :m]
        b = unlabeled[rows, drawn].gather(-1, b)
        chosen = torch.cat([a[..., :k].flatten(1), b.flatten(1), a[..., k:].flatten(1)], 1)
        chosen = chosen[of_split]
        coin = torch.rand(s, 2, device=DEVICE)[of_split]  # (R, 2)
        draws = torch.rand(s, ns + nu + nq, 4, device=DEVICE)[of_split]
        maps = crops(low, chosen.shape, draws)
        turn = torch.randint(4, (s, n + h), device=DEVICE)[of_split]
        turn = turn * (torch.rand(s, n + h, device=DEVICE)[of_split] < turning[:, None])
        maps = torch.cat([maps[..., :2] @ turns[turn[:, of_class]], maps[..., 2:]], -1)
        pixels = warp(data.images[chosen], maps, None)
        views = fleet.views()
        f = fleet.embed(views, pixels)
        fleet.running_mean.lerp_(f.detach().mean(1), 0.02)
        x = unit(f - fleet.running_mean[:, None])
        x_s, x_u, x_q = x.split([ns, nu, nq], 1)
        scalars = views["scalars"]
        s_a, s_q = scalars[:, 0].exp()[:, None, None], scalars[:, 1].exp()[:, None, None]
        threshold = scalars[:, 2, None, None]
        shots = torch.ones(len(runs), k, device=DEVICE)
        alone = (torch.arange(k, device=DEVICE) == 0).float()
        shots = torch.where((coin[:, 1] < one_shot)[:, None], alone, shots)  # (R, K)
        support = (x_s.unflatten(1, (n, k)) * shots[:, None, :, None]).sum(2)  # (R, N, D)
        there = torch.ones(len(runs), nu, device=DEVICE)
        there[:, n * m :] = (coin[:, :1] < share[:, None]).float()
        total, prototypes = 0.0, unit(support)
        for t in range(depth + 1):
            logits = s_q * (x_q @ prototypes.mT)  # (R, NQ, N)
            each = F.cross_entropy(logits.flatten(0, 1), target.repeat(len(runs)), reduction="none")
            total = total + w_steps[:, t] * each.view(len(runs), nq).mean(1)
            if t == 0 and walking:
                total = total + w_walk * walk_loss(
                    s_a * (x_u @ prototypes.mT), s_a * (x_u @ x_u.mT)
                )
            if t < depth:
                cos = x_u @ prototypes.mT  # (R, U, N)
                logits = s_a * torch.cat([cos, threshold.expand(-1, nu, 1)], -1)
                weight = logits.softmax(-1)[..., :n] * there[..., None]
                prototypes = unit(support + weight.mT @ x_u)
        if heading:
            raw = torch.cat([f[:, :ns], f[:, ns + nu :]], 1)
            label = torch.cat([chosen[:, :ns], chosen[:, ns + nu :]], 1) // IMAGES
            logits = scalars[:, 3].exp()[:, None, None] * (unit(raw) @ unit(views["head"]).mT)
            each = F.cross_entropy(logits.flatten(0, 1), label.flatten(), reduction="none")
            total = total + w_head * each.view(label.shape).mean(1)
        return total

    fleet.set_momentum(job.get("momentum", 0.02))
    optimizer = Optimizer(
        fleet,
        "adam",
        column(runs, "lr", 3e-4),
        column(runs, "decay", 0.0),
        job["steps"],
        job.get("ema", 0.999),
    )
    losses, seconds = run_steps(fleet, optimizer, loss_of, job["steps"])
    scalars = fleet.views(fleet.flat.detach())["scalars"]
    print(f"  stage 2: {seconds:.1f} s, losses {[round(x, 3) for x in losses]}", flush=True)
    print(
        f"  scales {[round(x, 1) for x in scalars[:, 0].exp().tolist()]} thresholds "
        f"{[round(x, 2) for x in scalars[:, 2].tolist()]}",
        flush=True,
    )
    keep(job, fleet, states, fleet.flat.detach())
    keep(job, fleet, states, optimizer.ema, "+ema")
    return fleet, seconds, (ns + nu + nq) * job["steps"] * len(runs) / seconds


def walk_loss(a: Tensor, between: Tensor) -> Tensor:
    """PRWN: walks from a prototype over the pile and back, and visits of all; (R,)."""
    n, u = a.shape[-1], a.shape[-2]
    to_points = 0.9 * a.softmax(-2) + 0.1 / u  # (R, U, N)
    to_classes = 0.9 * a.softmax(-1) + 0.1 / n
    eye = torch.eye(u, device=a.device, dtype=torch.bool)
    steps = between.masked_fill(eye, -1e9).softmax(-1)
    back, loss = to_classes, 0.0
    for t in range(4):
        around = to_points.mT @ back  # (R, N, N)
        home = around.diagonal(dim1=-2, dim2=-1).clamp_min(1e-8)
        loss = loss - 0.7**t * home.log().mean(-1)
        back = steps @ back
    visit = -to_points.mean(-1).clamp_min(1e-12).log().mean(-1) - math.log(u)
    return loss + visit


# validation classes


@torch.no_grad()
def folded(state: dict[str, Tensor]) -> list[tuple[Tensor, Tensor]]:
    """Convolution weights and biases of one run with its batch norm folded in."""
    layers = []
    for b in range(BLOCKS):
        mean, var = state["buffers"][2 * b], state["buffers"][2 * b + 1]
        gain = state[f"g{b}"] * torch.rsqrt(var + EPSILON)
        layers.append((state[f"w{b}"] * gain[:, None, None, None], state[f"b{b}"] - mean * gain))
    return layers


@torch.no_grad()
def embed_views(layers: list[tuple[Tensor, Tensor]], x: Tensor) -> Tensor:
    """Pixels (I, 3, H, W) in [0, 255] -> (I, D), in float16 on a GPU."""
    dtype = torch.float16 if CUDA else torch.float32
    x = (x.to(torch.float32) / 255).to(dtype).contiguous(memory_format=torch.channels_last)
    for weight, bias in layers:
        weight = weight.to(dtype).contiguous(memory_format=torch.channels_last)
        x = F.relu(F.max_pool2d(F.conv2d(x, weight, bias.to(dtype), padding=1), 2))
    return x.float().flatten(1)


@torch.no_grad()
def embed_all(state: dict[str, Tensor], images: Tensor, batch: int = 960) -> Tensor:
    """(I, D): averaged over each image and its mirror image."""
    layers, out = folded(state), []
    for some in images.split(batch):
        out.append((embed_views(layers, some) + embed_views(layers, some.flip(-1))) / 2)
    return torch.cat(out)


def settings() -> list[tuple[float, float]]:
    return [(s, -math.inf) for s in PLAIN] + [(s, t) for s, some in CLUSTER.items() for t in some]


@torch.no_grad()
def refine_all(
    x: Tensor, shot: int, pile: int, pairs: Tensor, way: int = 5, query: int = 20, most: int = 10
) -> Tensor:
    """Accuracy (K, T, E) of each pair (scale, threshold) after each number of steps in STEPS.

    `x` (E, P, D) of unit length: support, 10 x 20 unlabeled, query. All prototypes are sums of
    support and unlabeled images, so that their similarities come from the images' own.
    """
    ns, nu, e = way * shot, pile, len(x)
    keep_u = x[:, ns : ns + nu]
    base = torch.cat([x[:, :ns], keep_u], 1)  # (E, S + U, D)
    points = torch.cat([base, x[:, ns + 200 :]], 1)
    gram = base @ points.mT  # (E, S + U, P)
    own = gram[..., : ns + nu]
    k = len(pairs)
    label = torch.arange(way, device=x.device).repeat_interleave(shot)
    fixed = F.one_hot(label, way).T.float()  # (N, S)
    fixed = fixed.expand(e, k, way, ns)
    weight = torch.zeros(e, k, way, nu, device=x.device)
    truth = torch.arange(way, device=x.device).repeat_interleave(query)
    scale, threshold = pairs[:, 0].view(1, k, 1, 1), pairs[:, 1].view(1, k, 1, 1)
    out = []
    for t in range(most + 1):
        a = torch.cat([fixed, weight], -1).flatten(1, 2)  # (E, K N, S + U)
        similar = a @ gram  # (E, K N, P)
        norm = (a @ own * a).sum(-1, keepdim=True).clamp_min(1e-12).rsqrt()
        cos = (similar * norm).unflatten(1, (k, way))
        if t in STEPS:
            right = cos[..., ns + nu :].argmax(2) == truth
            out.append(right.float().mean(-1))  # (E, K)
        logits = scale * cos[..., ns : ns + nu]  # (E, K, N, U)
        extra = (scale * threshold).expand(e, k, 1, nu)
        weight = torch.cat([logits, extra], 2).softmax(2)[:, :, :way]
    return torch.stack(out).permute(2, 0, 1)  # (K, T, E)


@torch.no_grad()
def validate(job: dict, data: Data, states: dict, episodes: int, suffix: str = "") -> list[dict]:
    start, rows = data.val[0].start, []
    for run in job["runs"]:
        name, _, split_name = run["id"].rpartition("/")
        state = states[run["id"] + suffix]
        some = data.order(run["split"])[0][:, :30].flatten()
        mean = embed_all(state, data.images[some]).mean(0)
        z = unit(embed_all(state, data.images[start:]) - mean)  # (I, D)
        pairs, learned = settings(), None
        if state["stage"] == 2:
            learned = float(state["scalars"][0].exp()), float(state["scalars"][2])
            pairs = [*pairs, learned]
        table = torch.tensor(pairs, device=DEVICE)
        row = {**run, "id": f"{name}{suffix}/{split_name}", "job": job["name"], "learned": learned}
        for shot in (1, 5):
            places = data.val_episodes(run["split"], shot, episodes)
            for pile, d in ((100, 0), (200, 5)):
                parts = [refine_all(z[some], shot, pile, table) for some in places.split(1000)]
                acc = torch.cat(parts, -1)
                row[f"{shot}/{d}"] = (100 * acc.mean(-1)).cpu().numpy().round(3).tolist()
                usual = settings().index((12.0, 0.3) if d else (8.0, -math.inf))
                spread = acc[usual, STEPS.index(3 if d else 5)].std()
                row[f"{shot}/{d} se"] = round(100 * float(spread / episodes**0.5), 3)
        rows.append(row)
    return rows


CELLS = ("1/0", "1/5", "5/0", "5/5")


def print_table(rows: list[dict]) -> None:
    """By variant (the id without its split): the setting that is best for the mean over splits."""
    groups: dict[str, list[dict]] = {}
    for row in rows:
        groups.setdefault(row["id"].rsplit("/", 1)[0], []).append(row)
    pairs = settings()
    for name, held in groups.items():
        cells, means = [], []
        for cell in CELLS:
            table = np.array([h[cell] for h in held])  # (S, K, T)
            mean = table.mean(0)
            k, t = np.unravel_index(mean.argmax(), mean.shape)
            error = table[:, k, t].std(ddof=1) / len(held) ** 0.5 if len(held) > 1 else 0.0
            pair = "learned" if k == len(pairs) else f"{pairs[k][0]:.0f},{pairs[k][1]:.1f}"
            means.append(mean[k, t])
            cells.append(
                f"{cell} {mean[0, 0]:.2f}>{mean[k, t]:.2f}+-{error:.2f}[{pair}x{STEPS[t]}]"
            )
        print(f"  {name:<20} {np.mean(means):.2f} | {' '.join(cells)}", flush=True)


@torch.no_grad()
def teach(job: dict, data: Data, states: dict, soft: dict[str, Tensor]) -> None:
    """Soft labels (38400, 64) of all training images from the mean of several stage-1 runs."""
    for split, names in job["teachers"].items():
        count = len(data.train) * IMAGES
        table = torch.zeros(count, TRAIN_CLASSES, device=DEVICE)
        for name in names:
            state = states[name]
            layers, head, scale = folded(state), unit(state["head"]), state["scalars"][0].exp()
            for first in range(0, count, 960):
                some = data.images[first : min(first + 960, count)]
                for view in (some, some.flip(-1)):
                    cos = unit(embed_views(layers, view)) @ head.T
                    p = (scale * cos / job.get("temperature", 1.0)).softmax(-1)
                    table[first : first + len(some)] += p / (2 * len(names))
        table = table.half()
        soft[f"{job['name']}/{split}"] = table
        lab, unl = data.order(int(split))
        top = table.argmax(1)
        print(
            f"  teachers of split {split}: right on labeled "
            f"{(top[lab] == lab // IMAGES).float().mean():.3f}, on unlabeled "
            f"{(top[unl] == unl // IMAGES).float().mean():.3f}",
            flush=True,
        )


def check_fused(data: Data) -> None:
    """The fused kernels against the plain encoder: embeddings, gradients, and the folded one."""
    out = []
    for fused in (True, False):
        fleet = Fleet(1, 3, 3)
        fleet.begin([0, 1, 2])
        fleet.train(True)
        for encoder in fleet.encoders:
            encoder.fused = fused and CUDA
        images = data.images[:96].view(3, 32, 3, 84, 84)
        f = fleet.embed(fleet.views(), images)
        weight = torch.linspace(-1, 1, f.numel(), device=DEVICE).view_as(f).sin()
        (grad,) = torch.autograd.grad((f * weight).sum(), fleet.flat)
        out.append((f.detach(), grad[:, : sum(fleet.sizes[:12])]))
    for one, other, what in zip(*out, ("embedding", "gradient"), strict=True):
        error = ((one - other).norm() / other.norm()).item()
        print(f"  fused against plain, {what}: {error:.2e}", flush=True)
    fleet.train(False)
    job = {"runs": [{"id": f"check/{i}", "split": 0} for i in range(3)]}
    states: dict = {}
    keep(job, fleet, states, fleet.flat.detach())
    for encoder in fleet.encoders:
        encoder.fused = False
    plain = fleet.embed(fleet.views(), images)[1]
    alone = embed_views(folded(states["check/1"]), images[1])
    print(
        f"  folded against plain: {((alone - plain).norm() / plain.norm()).item():.2e}", flush=True
    )


def bench(job: dict, data: Data, states: dict) -> None:
    """Images a second of an update by how the runs are grouped, and by cuDNN's flags."""
    check_fused(data)
    for runs, group, labeled, benchmark, deterministic in job["cases"]:
        torch.backends.cudnn.benchmark = bool(benchmark)
        torch.backends.cudnn.deterministic = bool(deterministic)
        some = {"name": "bench", "steps": job["steps"], "labeled": labeled, "group": group,
                "runs": [{"id": f"bench/{i}", "split": 0} for i in range(runs)]}  # fmt: skip
        begun = time.monotonic()
        _, seconds, rate = stage1(some, data, {}, {})
        print(
            f"  runs {runs} group {group} batch {4 * labeled} benchmark {benchmark} "
            f"deterministic {deterministic}: {1e6 / rate:.2f} us an image, "
            f"{time.monotonic() - begun - seconds:.1f} s before",
            flush=True,
        )
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = True


def do(job: dict, data: Data, states: dict, soft: dict, out: Path) -> None:
    begun = time.monotonic()
    torch.manual_seed(job.get("seed", 0))
    print(f"{job['name']}: {job['kind']}, {len(job.get('runs', []))} runs", flush=True)
    if job["kind"] == "bench":
        bench(job, data, states)
        return
    if job["kind"] == "teach":
        teach(job, data, states, soft)
        return
    if job["kind"] == "stage1":
        _, seconds, rate = stage1(job, data, states, soft)
    else:
        _, seconds, rate = stage2(job, data, states)
    trained = time.monotonic() - begun
    episodes = job.get("episodes", 2000)
    rows = validate(job, data, states, episodes) if episodes else []
    if job.get("ema_too"):
        rows += validate(job, data, states, episodes, "+ema")
    wall = time.monotonic() - begun
    about = {k: v for k, v in job.items() if k != "runs"}
    device = torch.cuda.get_device_name() if CUDA else "CPU"
    about.update(
        train_seconds=round(seconds, 2),
        seconds_with_start=round(trained, 2),
        wall_seconds=round(wall, 2),
        images_per_second=round(rate),
        device=device,
        steps_read=STEPS,
        settings=[list(p) for p in settings()],
        validation_episodes=episodes,
    )
    (out / f"{job['name']}.json").write_text(
        json.dumps({"job": about, "rows": rows}).replace("-Infinity", "null")
    )
    names = [r["id"] for r in job["runs"]]
    if job.get("save", True):
        left = ("head", "rotation", "joint")
        small = {n: {k: v.cpu() for k, v in states[n].items() if k not in left} for n in names}
        torch.save(small, out / f"{job['name']}.pt")
    print(f"  {1e6 / rate:.2f} us an image; {wall:.1f} s in all", flush=True)
    print_table(rows)


def main(folder: Path, jobs: Path, out: Path, serve: bool) -> None:
    if CUDA:
        torch.backends.cuda.matmul.allow_tf32 = True
        torch.backends.cudnn.allow_tf32 = True
        torch.backends.cudnn.benchmark = False
        torch.backends.cudnn.deterministic = True
    out.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    data = Data(folder)
    print(f"data in {time.monotonic() - begun:.1f} s, on {DEVICE}", flush=True)
    states: dict = {}
    for path in sorted(out.glob("*.pt")):  # of earlier servers
        for name, state in torch.load(path, weights_only=True).items():
            states[name] = {k: v.to(DEVICE) for k, v in state.items()}
    soft: dict[str, Tensor] = {}
    done: set[str] = set()
    while True:
        waiting = sorted(p for p in jobs.glob("*.json") if p.name not in done)
        if not waiting:
            if not serve or (jobs / "stop").exists():
                return
            time.sleep(0.2)
            continue
        done.add(waiting[0].name)
        try:
            do(json.loads(waiting[0].read_text()), data, states, soft, out)
        except Exception as error:
            print(
                f"  FAILED {waiting[0].name}: {type(error).__name__}: {str(error)[:600]}",
                flush=True,
            )
            print(traceback.format_exc()[-1500:], flush=True)
        if CUDA:
            torch.cuda.empty_cache()
        (out / f"{waiting[0].stem}.done").touch()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), "--serve" in sys.argv)
