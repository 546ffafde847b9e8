"""Learns the rule of PrototypeClassifier from piles: statistics in, N + 1 probabilities out.

    PYTHONPATH=benchmarks python -m pile_tasks.learning FEATURES STATISTICS learn 0 36200
    PYTHONPATH=benchmarks python -m pile_tasks.learning FEATURES STATISTICS choose 0 800
    PYTHONPATH=benchmarks python benchmarks/learn_rule.py STATISTICS WEIGHTS

EPOCHS, RATE and SEED may be set, and START to the weights to begin with. Those of the package had six epochs
of 36,200 piles, drawn in two parts whose mixture is that of `pile_tasks.learning`, then one epoch (RATE=0.001
SEED=1) with 3,000 more, four of five of one class and most without a pile. So this gives a rule like it, not
its digits. Half an hour on two cores. Needs PyTorch; what is learned is run by NumPy.
Letters: T tasks at once, R rows of each, N classes at most, A numbers, W hidden units.
"""

import copy
import os
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from semishot.estimator.rule import SMALLEST_SPREAD
from semishot.estimator.statistics import PAIR, PILE, ROW
from semishot.system.tensor_files import read_arrays, write_arrays

EPOCHS, RATE = int(os.environ.get("EPOCHS", 6)), float(os.environ.get("RATE", 3e-3))
SEED, START = int(os.environ.get("SEED", 0)), os.environ.get("START")
AT_ONCE, WIDTH, DECAY = 32, 64, 1e-4
ROWS, CONTEXT, LABELS = 80, 80, 32
FAR = -1e4


class Network(nn.Module):
    """What `semishot.estimator.rule.Rule` computes, for many piles at once."""

    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()

        def matrix(rows: int, columns: int) -> nn.Parameter:
            return nn.Parameter(torch.randn(rows, columns) * (1.5 / rows) ** 0.5)

        def zeros(count: int) -> nn.Parameter:
            return nn.Parameter(torch.zeros(count))

        self.p = nn.ParameterDict(
            {
                "pair": matrix(3 * PAIR, width),
                "row": matrix(2 * ROW, width),
                "pile": matrix(PILE, width),
                "pile_bias": zeros(width),
                "own": matrix(width, width),
                "across": matrix(2 * width, width),
                "class": matrix(width, width),
                "shared": matrix(3 * width + 1, width),
                "second_bias": zeros(width),
                "logit": matrix(width, 1),
                "stranger_1": matrix(2 * width, 32),
                "stranger_1_bias": zeros(32),
                "stranger_2": matrix(32, 1),
                "stranger_2_bias": zeros(1),
                "doubt_1": matrix(3 * width + 1 + PILE, 16),
                "doubt_1_bias": zeros(16),
                "doubt_2": nn.Parameter(torch.zeros(16, 1)),
                "doubt_2_bias": nn.Parameter(torch.full((1,), -0.7)),
            }
        )

    def first(self, batch: dict[str, Tensor], name: str, pile: Tensor) -> Tensor:
        """(T, R, N, W)"""
        pairs, rows, classes = batch[f"{name}pairs"], batch[f"{name}rows"], batch["classes"]
        there = (torch.arange(pairs.shape[2], device=pairs.device) < classes[:, None])[
            :, None, :, None
        ]
        ranked = pairs.masked_fill(~there, FAR).topk(min(2, pairs.shape[2]), 2).values
        best = ranked[:, :, :1]
        second = ranked[:, :, -1:] if pairs.shape[2] > 1 else best
        other = torch.where(pairs == best, second, best)
        other = torch.where(classes[:, None, None, None] == 1, pairs, other)
        center, spread, row_center, row_spread = (
            each[:, None] for each in batch["scale"].unbind(1)
        )
        scaled = ((pairs - center[:, :, None]) / (spread[:, :, None] + SMALLEST_SPREAD)).clip(-5, 5)
        of_pair = torch.cat([pairs, pairs - other, scaled], -1) @ self.p["pair"]
        scaled = ((rows - row_center) / (row_spread + SMALLEST_SPREAD)).clip(-5, 5)
        of_row = torch.cat([rows, scaled], -1) @ self.p["row"] + pile[:, None]
        return F.relu(of_pair + of_row[:, :, None]) * there

    def forward(self, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Logits (T, R, N), log-odds of strangers (T, R), doubt (T,)."""
        p, classes = self.p, batch["classes"]
        pile = batch["pile"] @ p["pile"] + p["pile_bias"]

        def mean(values: Tensor, mask: Tensor) -> Tensor:  # (T, R, ...), (T, R)
            mask = mask.reshape(*mask.shape, *[1] * (values.dim() - 2)).float()
            return (values * mask).sum(1) / mask.sum(1).clamp(min=1)

        context = self.first(batch, "context_", pile)
        held = self.first(batch, "held_", pile)
        place = batch["held_class"][:, :, None, None].expand(-1, -1, 1, held.shape[-1])
        own = held.gather(2, place)[:, :, 0]
        other = held.scatter(2, place, 0.0).amax(2)
        there, held_there = batch["context_there"], batch["held_there"]
        labels = torch.log1p(held_there.sum(1, keepdim=True).float()) / 3
        joined = torch.cat(
            [mean(context.amax(2), there), mean(own, held_there), mean(other, held_there), labels],
            1,
        )
        second = (
            mean(context, there) @ p["class"] + (joined @ p["shared"] + p["second_bias"])[:, None]
        )
        exists = (torch.arange(batch["pairs"].shape[2], device=classes.device) < classes[:, None])[
            :, None
        ]
        h = self.first(batch, "", pile)
        count = classes[:, None, None]
        across = torch.cat([h.sum(2) / count, h.amax(2)], -1) @ p["across"]
        h = F.relu(h @ p["own"] + across[:, :, None] + second[:, None]) * exists[..., None]
        logits = (h @ p["logit"])[..., 0].masked_fill(~exists, FAR)
        pooled = torch.cat([h.amax(2), h.sum(2) / count], -1)
        stranger = F.relu(pooled @ p["stranger_1"] + p["stranger_1_bias"]) @ p["stranger_2"]
        hidden = F.relu(
            torch.cat([joined, batch["pile"]], 1).detach() @ p["doubt_1"] + p["doubt_1_bias"]
        )
        doubt = (hidden @ p["doubt_2"] + p["doubt_2_bias"])[:, 0].exp()
        return logits, stranger[..., 0] + p["stranger_2_bias"], doubt


def load(path: Path) -> dict[str, np.ndarray]:
    with np.load(path) as file:
        task = {key: file[key] for key in file.files}
    pairs, rows = task["context_pairs"].astype(np.float32), task["context_rows"].astype(np.float32)
    if not len(pairs):
        pairs, rows = np.zeros((1, 1, PAIR), np.float32), np.zeros((1, ROW), np.float32)
    best = pairs.max(1)
    task["scale"] = np.stack([best.mean(0), best.std(0), rows.mean(0), rows.std(0)])
    return task


def batch_of(
    tasks: list[dict], rng: np.random.Generator, device: str, rows: int = ROWS
) -> dict[str, Tensor]:
    """Some rows of each task, padded."""
    most = max(task["pairs"].shape[1] for task in tasks)
    found: dict[str, list] = {}

    def padded(array: np.ndarray, count: int, classes: bool = False) -> np.ndarray:
        shape = (count, most, *array.shape[2:]) if classes else (count, *array.shape[1:])
        out = np.zeros(shape, np.float32)
        if classes:
            out[: len(array), : array.shape[1]] = array
        else:
            out[: len(array)] = array
        return out

    for task in tasks:
        for name, key, wanted in (
            ("", "truth", rows),
            ("context_", None, CONTEXT),
            ("held_", "held_class", LABELS),
        ):
            pairs = task[f"{name}pairs"]
            chosen = rng.permutation(len(pairs))[:wanted]
            found.setdefault(f"{name}pairs", []).append(padded(pairs[chosen], wanted, True))
            found.setdefault(f"{name}rows", []).append(padded(task[f"{name}rows"][chosen], wanted))
            found.setdefault(f"{name}there", []).append(np.arange(wanted) < len(chosen))
            if key:
                found.setdefault(key, []).append(padded(task[key][chosen], wanted))
        for key in ("pile", "scale"):
            found.setdefault(key, []).append(task[key])
        found.setdefault("classes", []).append(task["pairs"].shape[1])
    batch = {
        key: torch.from_numpy(np.stack(each) if key != "classes" else np.array(each))
        for key, each in found.items()
    }
    for key in ("truth", "held_class"):
        batch[key] = batch[key].long()
    return {key: each.to(device) for key, each in batch.items()}


def losses(network: Network, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Means over tasks: of classes (members), of strangers, and of all strangers of a task together."""
    logits, stranger, doubt = network(batch)
    truth, there = batch["truth"], batch["there"]
    member = there & (truth >= 0)
    of_class = F.cross_entropy(logits.flatten(0, 1), truth.clamp(min=0).flatten(), reduction="none")
    of_class = (of_class.view(truth.shape) * member).sum(1) / there.sum(1).clamp(min=1)
    target = (truth < 0).float()
    each = F.binary_cross_entropy_with_logits(stranger, target, reduction="none") * there
    of_stranger = each.sum(1) / there.sum(1).clamp(min=1)
    nodes, weights = np.polynomial.hermite_e.hermegauss(9)
    moved = (
        stranger.detach()[:, None]
        + doubt[:, None, None] * torch.tensor(nodes, device=doubt.device).float()[None, :, None]
    )
    together = -F.binary_cross_entropy_with_logits(
        moved, target[:, None].expand_as(moved), reduction="none"
    )
    together = (together * there[:, None]).sum(2) + torch.tensor(
        np.log(weights / weights.sum()), device=doubt.device
    ).float()
    return (
        of_class.mean(),
        of_stranger.mean(),
        -(torch.logsumexp(together, 1) / there.sum(1).clamp(min=1)).mean(),
    )


def order_of(tasks: list[dict], rng: np.random.Generator) -> list[np.ndarray]:
    """Batches of tasks of about as many classes, in random order."""
    size = np.array([task["pairs"].shape[1] for task in tasks])
    ranking = np.argsort(size + rng.uniform(0, 2, len(tasks)), kind="stable")
    batches = np.array_split(ranking, max(1, len(tasks) // AT_ONCE))
    return [batches[index] for index in rng.permutation(len(batches))]


def save(network: Network, path: Path) -> None:
    write_arrays(
        path,
        {name.replace("_", "."): each.detach().cpu().numpy() for name, each in network.p.items()},
        {},
    )


def main() -> None:
    folder, out = Path(sys.argv[1]), Path(sys.argv[2])
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(SEED)
    rng = np.random.default_rng(SEED)
    begun = time.time()
    learn = [load(path) for path in sorted(folder.glob("learn-*.npz"))]
    choose = [load(path) for path in sorted(folder.glob("choose-*.npz"))]
    print(len(learn), "tasks,", round(time.time() - begun), "s", flush=True)
    network = Network().to(device)
    if START:
        for name, values in read_arrays(Path(START))[0].items():
            network.p[name.replace(".", "_")].data = torch.from_numpy(values).to(device)
    average = copy.deepcopy(network)
    optimizer = torch.optim.AdamW(network.parameters(), RATE, weight_decay=DECAY, betas=(0.9, 0.98))
    updates, step = EPOCHS * max(1, len(learn) // AT_ONCE), 0
    begun = time.time()
    for epoch in range(EPOCHS):
        total = np.zeros(3)
        batches = order_of(learn, rng)
        for chosen in batches:
            share = step / updates
            for group in optimizer.param_groups:
                group["lr"] = RATE * min(1, step / 200) * (0.5 + 0.5 * np.cos(np.pi * share))
            batch = batch_of([learn[index] for index in chosen], rng, device)
            optimizer.zero_grad()
            parts = losses(network, batch)
            sum(parts).backward()
            nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimizer.step()
            step += 1
            with torch.no_grad():
                keep = min(0.998, step / (step + 20))
                for mean, now in zip(average.parameters(), network.parameters(), strict=True):
                    mean.lerp_(now, 1 - keep)
            total += [float(each.detach()) for each in parts]
        line = f"{epoch:3} {round(time.time() - begun):5} s  learn " + " ".join(
            f"{each:.4f}" for each in total / len(batches)
        )
        if choose and (epoch % 3 == 2 or epoch == EPOCHS - 1):
            fixed = np.random.default_rng(1)
            with torch.no_grad():
                parts = [
                    losses(average, batch_of([choose[i] for i in c], fixed, device, 160))
                    for c in order_of(choose, fixed)
                ]
            line += "  choose " + " ".join(
                f"{float(torch.stack(each).mean()):.4f}" for each in zip(*parts, strict=True)
            )
        print(line, flush=True)
        save(average, out)
    print("weights:", out.stat().st_size, "bytes;", round(time.time() - begun), "s")


if __name__ == "__main__":
    main()
