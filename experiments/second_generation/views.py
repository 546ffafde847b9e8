"""Embeddings of the validation images under several views, on a CPU, for settings chosen at test.

PYTHONPATH=src:experiments python -m second_generation.views DATA WEIGHTS.pt RUN... OUT [--crops]
"""

import sys
from pathlib import Path

import numpy as np
import torch
from second_generation.train import Data, embed_views, folded
from torch.nn import functional as F

SIDE = 0.9


def views(images: torch.Tensor, crops: bool) -> list[torch.Tensor]:
    """The image, and crops of nine tenths of the side: at the corners."""
    out = [images.float()]
    for x, y in ((-1, -1), (1, -1), (-1, 1), (1, 1)) if crops else ():
        shift = 1 - SIDE
        one = torch.tensor([[SIDE, 0, shift * x], [0, SIDE, shift * y]])
        grid = F.affine_grid(one.expand(len(images), 2, 3), list(images.shape), align_corners=False)
        out.append(F.grid_sample(images.float(), grid, align_corners=False))
    return out


@torch.no_grad()
def embed(layers, images: torch.Tensor, crops: bool) -> torch.Tensor:
    """(I, V, D), each view averaged with its mirror image."""
    parts = []
    for some in images.split(64):
        each = [
            (embed_views(layers, v) + embed_views(layers, v.flip(-1))) / 2
            for v in views(some, crops)
        ]
        parts.append(torch.stack(each, 1).half())
    return torch.cat(parts)


def main(folder: Path, weights: Path, runs: list[str], out: Path, crops: bool) -> None:
    data = Data(folder)
    out.mkdir(parents=True, exist_ok=True)
    held = torch.load(weights, map_location="cpu", weights_only=True)
    for run in runs:
        state = held[run]
        layers = folded(state)
        split = int(state["split"])
        some = data.order(split)[0][:, :10].flatten()
        train = embed(layers, data.images[some], crops).numpy()
        val = embed(layers, data.images[data.val[0].start :], crops).numpy()
        name = run.replace("/", "_").replace("<", "_")
        np.savez(out / f"{name}.npz", train=train, val=val, scalars=state["scalars"].numpy())
        print(run, flush=True)


if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if word != "--crops"]
    main(Path(words[0]), Path(words[1]), words[2:-1], Path(words[-1]), "--crops" in sys.argv)
