"""Run by a test: pre-trains in children that are killed at many moments, then once to the end."""

import sys
from pathlib import Path

import torch

from semishot.data.pool import open_pool
from semishot.system import files, locks
from semishot.training import classification, code_state, examples, loop, run_folder
from semishot.training.classification import ClassificationRequest
from semishot.training.config import Recipe
from support.killing import attempt

WATCHED = {module.__file__ for module in (classification, examples, files, locks, loop, run_folder)}
CPU = torch.device("cpu")
RECIPE = Recipe(updates=7, halvings=(4,), filters=4, init_std=0.1)
MOMENTS = 20


def main(pool: Path, work: Path) -> None:
    """`whole` undisturbed; `killed-N` killed once at event N; `often` until it got through."""
    opened = open_pool(pool)

    def pretrained(folder: Path) -> None:
        """A seed alone, and two side by side, as on a GPU."""
        classification.pretrained_encoders(ClassificationRequest(opened, RECIPE, CPU), [3], folder)
        pair = {seed: folder / f"{seed}.safetensors" for seed in (4, 1)}
        bug = ClassificationRequest(opened, RECIPE, CPU, scale_bug=True)
        row = classification.row_of_classifiers(bug, list(pair))
        for _ in classification.train_together(bug, pair, row, None):
            pass

    events = attempt(lambda: pretrained(work / "whole"), WATCHED)
    assert events is not None
    for moment in range(1, events, events // MOMENTS):
        folder = work / f"killed-{moment}"
        assert attempt(lambda folder=folder: pretrained(folder), WATCHED, moment) is None
        assert attempt(lambda folder=folder: pretrained(folder), WATCHED) is not None
    kills = 0
    while attempt(lambda: pretrained(work / "often"), WATCHED, 300 * (kills + 1)) is None:
        kills += 1
    print(kills)


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.optim.Adam([torch.zeros(1, requires_grad=True)]).step()  # its slow imports, once
    code_state.code_state()  # and its reading of our source
    loop.CHUNK = loop.CPU_CHUNK = 2
    loop.CHECKPOINT_SECONDS = 0.0
    main(Path(sys.argv[1]), Path(sys.argv[2]))
