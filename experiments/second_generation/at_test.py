"""Refinement rules compared at test on a trained fleet, on validation classes and a CPU.

PYTHONPATH=src:experiments python -m second_generation.at_test DATA EPISODES OUT EMBEDDINGS.npz...

The embeddings are those of `second_generation.views`, named RUN_SPLIT.npz.
Letters: E episodes, S support, U unlabeled, P = S + U + queries, N way.
"""

import json
import math
import sys
import time
from pathlib import Path

import numpy as np
import torch
from second_generation.train import Data, unit
from torch import Tensor
from torch.nn import functional as F

WAY, QUERY, M = 5, 20, 20


def refine(
    x: Tensor,
    shot: int,
    pile: int,
    scales: list[float],
    threshold: float = -math.inf,
    mask: Tensor | None = None,
    support: float = 1.0,
    relative: bool = False,
) -> Tensor:
    """(E, P, D) of unit length -> the share of right queries (E,). One scale for each step.

    `relative`: the threshold is a part of the mean over the pile of the largest similarity.
    """
    s = x[:, : WAY * shot].unflatten(1, (WAY, shot)).sum(2) * support  # (E, N, D)
    u = x[:, WAY * shot : WAY * shot + pile]
    q = x[:, WAY * shot + 10 * M :]
    prototypes = unit(s)
    for scale in scales:
        cos = u @ prototypes.mT  # (E, U, N)
        level = (
            cos.amax(-1).mean(-1)[:, None, None] * threshold
            if relative
            else torch.tensor(threshold)
        )
        logits = scale * torch.cat([cos, level.expand(*cos.shape[:2], 1)], -1)
        weight = logits.softmax(-1)[..., :WAY]
        if mask is not None:
            weight = weight * mask[..., None]
        prototypes = unit(s + weight.mT @ u)
    truth = torch.arange(WAY).repeat_interleave(QUERY)
    return ((q @ prototypes.mT).argmax(-1) == truth).float().mean(-1)


def oslo(x: Tensor, shot: int, pile: int) -> Tensor:
    s, u = x[:, : WAY * shot].unflatten(1, (WAY, shot)).sum(2), x[:, WAY * shot : WAY * shot + pile]
    q = x[:, WAY * shot + 10 * M :]
    w, z = unit(s), torch.full((*u.shape[:2], WAY), 1 / WAY)
    for _ in range(2):
        cos = u @ w.mT
        inside = torch.sigmoid((z * cos).sum(-1) / 0.05)
        z = (inside[..., None] * cos / 0.1).softmax(-1)
        w = unit(s + (inside[..., None] * z).mT @ u)
    truth = torch.arange(WAY).repeat_interleave(QUERY)
    return ((q @ w.mT).argmax(-1) == truth).float().mean(-1)


def propagated(x: Tensor, shot: int, pile: int, nearest: int = 15, alpha: float = 0.8) -> Tensor:
    """(E, U): the largest propagated label of each unlabeled image, its logarithm."""
    n = WAY * shot + pile
    base = x[:, :n]
    w = (base @ base.mT).clamp_min(0)
    w = w - torch.diag_embed(w.diagonal(dim1=-2, dim2=-1))
    top = w.topk(nearest, -1)
    w = torch.zeros_like(w).scatter_(-1, top.indices, top.values**3)
    w = (w + w.mT) / 2
    d = w.sum(-1).clamp_min(1e-9).rsqrt()
    w = d[..., None] * w * d[:, None]
    y = torch.zeros(len(x), n, WAY)
    y[:, : WAY * shot] = F.one_hot(torch.arange(WAY).repeat_interleave(shot), WAY).float()
    z = torch.linalg.solve(torch.eye(n) - alpha * w, y)
    return z[:, WAY * shot :].amax(-1).clamp_min(1e-9).log()


def posterior(score: Tensor, rounds: int = 30) -> Tensor:
    """(E, U): of the upper of two normals fitted to each episode's scores."""
    low, high = score.quantile(0.25, -1), score.quantile(0.75, -1)
    mean = torch.stack([low, high], -1)[:, None]  # (E, 1, 2)
    var = score.var(-1)[:, None, None].expand(-1, 1, 2) / 4
    share = torch.full_like(mean, 0.5)
    x = score[..., None]
    for _ in range(rounds):
        p = (share.log() - 0.5 * var.log() - (x - mean) ** 2 / (2 * var)).softmax(-1)  # (E, U, 2)
        total = p.sum(1, keepdim=True).clamp_min(1e-3)
        mean = (p * x).sum(1, keepdim=True) / total
        var = (p * (x - mean) ** 2).sum(1, keepdim=True) / total + 1e-3
        share = total / total.sum(-1, keepdim=True)
    upper = (mean[..., 1:] > mean[..., :1]).squeeze(1)
    return torch.where(upper, p[..., 1], p[..., 0])


def variants(raw: Tensor, mean: Tensor, shot: int, pile: int) -> dict[str, Tensor]:
    """Raw embeddings (E, P, D) -> accuracies (E,) by name."""
    n = WAY * shot
    x = unit(raw - mean)
    plain, level = ([8.0] * 10, -math.inf) if pile == 100 else ([12.0] * 2, 0.3)
    out = {"usual": refine(x, shot, pile, plain, level), "supervised": refine(x, shot, pile, [])}
    seen = torch.cat([raw[:, :n], raw[:, n : n + pile]], 1).mean(1, keepdim=True)
    for share in (0.5, 1.0):
        out[f"task mean {share}"] = refine(
            unit(raw - share * seen - (1 - share) * mean), shot, pile, plain, level
        )
    out["OSLO"] = oslo(x, shot, pile)
    for w in (0.5, 2.0):
        out[f"support weighs {w}"] = refine(x, shot, pile, plain, level, support=w)
    rising = list(np.linspace(6, 16, len(plain)))
    out["scale rising 6 to 16"] = refine(x, shot, pile, rising, level)
    score = propagated(x, shot, pile)
    inside = posterior(score)
    for steps in (2, 3):
        out[f"propagation mask, scale 12, {steps} steps"] = refine(
            x, shot, pile, [12.0] * steps, mask=inside
        )
        out[f"propagation mask and threshold, {steps} steps"] = refine(
            x, shot, pile, [12.0] * steps, 0.2, mask=inside
        )
        for part in (0.8, 1.0):
            out[f"relative threshold {part}, {steps} steps"] = refine(
                x, shot, pile, [12.0] * steps, part, relative=True
            )
    out["scale 12, threshold 0.25, 3 steps"] = refine(x, shot, pile, [12.0] * 3, 0.25)
    out["propagation mask alone where it finds strangers"] = refine(
        x,
        shot,
        pile,
        *((plain, level) if pile == 100 else ([12.0] * 3, 0.1)),
        mask=None if pile == 100 else inside,
    )
    return out


def main(folder: Path, episodes: int, out: Path, files: list[Path]) -> None:
    data = Data(folder)
    table: dict[str, dict[str, list[float]]] = {}
    for path in files:
        begun = time.monotonic()
        split = int(path.stem.rsplit("_", 1)[1])
        held = np.load(path)
        raw, train = torch.from_numpy(held["val"]).float(), torch.from_numpy(held["train"]).float()
        views = {"": raw[:, 0]} | ({", corner crops too": raw.mean(1)} if raw.shape[1] > 1 else {})
        for name, embedded in views.items():
            base = train[:, 0] if not name else train.mean(1)
            mean = base.mean(0)
            for shot in (1, 5):
                places = data.val_episodes(split, shot, episodes)
                for pile, d in ((100, 0), (200, 5)):
                    parts = [variants(embedded[p], mean, shot, pile) for p in places.split(20)]
                    for key in parts[0]:
                        value = torch.cat([p[key] for p in parts]).mean().item() * 100
                        table.setdefault(key + name, {}).setdefault(f"{shot}/{d}", []).append(
                            round(value, 3)
                        )
        print(path.stem, f"{time.monotonic() - begun:.0f} s", flush=True)
    usual = table["usual"]
    print(f"{'':<48}" + "".join(f"{c:>16}" for c in usual))
    rows = []
    for name, cells in table.items():
        row = {"rule": name, "accuracy": cells, "difference": {}, "error": {}}
        text = ""
        for cell, values in cells.items():
            gain = np.array(values) - np.array(usual[cell])
            error = gain.std(ddof=1) / len(gain) ** 0.5 if len(gain) > 1 else math.nan
            row["difference"][cell], row["error"][cell] = (
                round(float(gain.mean()), 2),
                round(float(error), 2),
            )
            text += f"{np.mean(values):7.2f} {gain.mean():+.2f}±{error:.2f}"
        rows.append(row)
        print(f"{name:<48}{text}")
    splits = [int(f.stem.rsplit("_", 1)[1]) for f in files]
    out.write_text(json.dumps({"episodes": episodes, "splits": splits, "rules": rows}) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), [Path(p) for p in sys.argv[4:]])
