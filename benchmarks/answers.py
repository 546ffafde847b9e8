"""Answers until a pile is sorted: a user who knows the truth is asked about image after image.

    PYTHONPATH=benchmarks python -m stranger_tasks.features DATA FOLDER
    python benchmarks/answers.py FOLDER --half choose --out FILE    as often as you like
    python benchmarks/answers.py FOLDER --half report               once, when the rule is final
    python benchmarks/answers.py --page                             docs/answers.md and docs/answers.png

Ten classes of birds (first 20 classes to choose, last 20 to report) or of miniImageNet (validation to choose,
test to report), 20 members of each in the pile, and strangers: as many as members, of few kinds, or 3 of each
of many kinds. The user has one labeled image of each class, or none: then the first answers are about a
varied three dozen. Ten images are chosen and answered, the pile is judged anew, and so on. An image is right
if it was answered, if it is a member and put into its class, or if it is a stranger and rejected at the
default `reject` = 0.05. `look_through` counts clicks until all is right, if after some answers the user looks
through all groups: a click for each wrong image, and one for each screen of 50 accepted; the best moment.
Errors are standard errors over tasks.
"""

import argparse
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from semishot.estimator.graph_rule import LabeledPile
from threadpoolctl import threadpool_limits

from measurement import about_tasks
from pages import between, write_lines
from semishot.estimator.labels import NAMED_STRANGER, UNLABELED
from semishot.estimator.models import Learned
from semishot.estimator.next_labels import doubt, varied, worth_asking
from semishot.system.files import read_json
from speed_tables import markdown
from stranger_tasks.tasks import Cell, Source, Task, draw, sources

PAGE = Path(__file__).parents[1] / "docs" / "answers.md"
RESULTS = Path(__file__).parents[1] / "results" / "answers.json"
PLOT = PAGE.with_name("answers.png")
BEGIN, END = "<!-- answers -->", "<!-- /answers -->"
WAY, REJECT, BATCH, FIRST, SCREEN = 10, 0.05, 10, 36, 50
TARGETS = (0.95, 0.98)
ONE, NONE = "one label per class", "no label"
OURS, UNCERTAIN, RANDOM, BY_HAND = "ours", "highest entropy", "random", "by hand"
Array = NDArray[Any]
Found = dict[str, Any]


class Asked(NamedTuple):
    """Whom a rule may ask about, and what is known."""

    pile: LabeledPile
    learned: Learned
    allowed: Array  # (P,)
    rng: np.random.Generator


def ours(asked: Asked) -> Array:
    learned = asked.learned
    worth = doubt(learned.answer.classes, learned.answer.scores, learned.members)
    worth[~asked.allowed] = 0.0
    found = worth_asking(asked.pile.features, asked.pile.neighbours.space, worth, BATCH)
    return found if len(found) else at_random(asked)  # all are certain


def highest_entropy(asked: Asked) -> Array:
    """Over all classes and "stranger"."""
    answer = asked.learned.answer
    p = np.column_stack([answer.classes * (1 - answer.stranger)[:, None], answer.stranger])
    entropy = -(p * np.log(np.maximum(p, 1e-12))).sum(1)
    best: Array = np.argsort(np.where(asked.allowed, -entropy, np.inf), kind="stable")
    return best[: min(BATCH, asked.allowed.sum())]


def at_random(asked: Asked) -> Array:
    return asked.rng.permutation(np.flatnonzero(asked.allowed))[:BATCH]


RULES: dict[str, Callable[[Asked], Array]] = {
    OURS: ours,
    UNCERTAIN: highest_entropy,
    RANDOM: at_random,
}


class User:
    """The answers given so far, and how much of the pile is right."""

    def __init__(self, task: Task, start: str) -> None:
        self.truth, self.pile = task.truth, LabeledPile(task.features)
        self.labels = task.labels if start == ONE else np.full(len(task.labels), UNLABELED)
        self.given = self.labels != UNLABELED

    @property
    def answers(self) -> int:
        return int((self.labels != UNLABELED).sum() - self.given.sum())

    def answer(self, rows: Array) -> None:
        self.labels = self.labels.copy()
        self.labels[rows] = np.where(self.truth[rows] < 0, NAMED_STRANGER, self.truth[rows])

    def judged(self) -> tuple[Learned, Array]:
        """What is learned of the answers, and which rows are right, (P,)."""
        names, places = np.unique(self.labels[self.labels >= 0], return_inverse=True)
        labels = self.labels.copy()
        labels[labels >= 0] = places
        learned = self.pile.learn(labels)
        self.guess = names[learned.answer.classes.argmax(1)]
        self.guess[learned.answer.scores < learned.members.cutoff(REJECT)] = -1
        return learned, (self.guess == self.truth) | (self.labels != UNLABELED)

    def screens(self) -> int:
        """Screens of guessed images, group by group."""
        _, sizes = np.unique(self.guess[self.labels == UNLABELED], return_counts=True)
        return int(np.ceil(sizes / SCREEN).sum())


def play(task: Task, start: str, rule: str, seed: int) -> Found:
    """Answer until 98 % are right. The batch that reaches a target is replayed answer by answer."""
    user, rng = User(task, start), np.random.default_rng(seed)
    size = int((~user.given).sum())
    first = np.empty(0, int)
    if start == NONE:
        space = user.pile.neighbours.space
        first = (
            rng.permutation(size)[:FIRST] if rule == RANDOM else varied(task.features, space, FIRST)
        )
    user.answer(first)
    learned, right = user.judged()
    curve = [(user.answers, right[~user.given].mean())]
    clicks = [user.answers + int((~right).sum()) + user.screens()]
    found: Found = {"pile": size}
    while curve[-1][1] < TARGETS[-1]:
        before = user.labels
        rows = RULES[rule](Asked(user.pile, learned, before == UNLABELED, rng))
        user.answer(rows)
        learned, right = user.judged()
        clicks.append(user.answers + int((~right).sum()) + user.screens())
        share, after = right[~user.given].mean(), user.labels
        for target in TARGETS:
            if curve[-1][1] < target <= share and target not in found:
                user.labels = before
                found[target] = replayed(user, rows, target)
        user.labels = after
        curve.append((user.answers, share))
    return {**found, "curve": curve, "look_through": min(clicks), "at_once": clicks[0]}


def replayed(user: User, rows: Array, target: float) -> int:
    for row in rows:
        user.answer(np.array([row]))
        if user.judged()[1][~user.given].mean() >= target:
            break
    return user.answers


def one_task(folder: Path, half: str, of: tuple[Cell, str, str, int]) -> Found:
    torch.set_num_threads(1)
    threadpool_limits(1)
    cell, start, rule, seed = of
    found = all_sources(folder, half)[cell.data, cell.way]
    return play(draw(found, cell, seed), start, rule, seed)


@cache
def all_sources(folder: Path, half: str) -> dict[tuple[str, int], Source]:
    """Read once by each process."""
    return sources(folder, half)


def mean_and_error(name: str, values: Sequence[float]) -> Found:
    error = np.std(values, ddof=1) / len(values) ** 0.5 if len(values) > 1 else 0.0
    return {name: round(float(np.mean(values)), 1), f"{name}_error": round(float(error), 1)}


def summary(runs: list[Found]) -> Found:
    found: Found = {}
    for target in TARGETS:
        # a target that the start reaches needs no answer beyond it
        needed = [run.get(target, run["curve"][0][0]) for run in runs]
        found |= mean_and_error(f"answers_{target:.0%}".rstrip("%"), needed)
    for name in ("look_through", "at_once"):
        found |= mean_and_error(name, [run[name] for run in runs])
    first = runs[0]["curve"][0][0]
    grid = range(first, max(run["curve"][-1][0] for run in runs) + 1, BATCH)
    each = [np.interp(grid, *zip(*run["curve"], strict=True)) for run in runs]
    found["from"] = first
    found["right"] = np.mean(each, 0).round(4).tolist()
    return found


def by_hand(runs: list[Found]) -> Found:
    found: Found = {}
    for target in TARGETS:
        needed = [int(np.ceil(target * run["pile"])) for run in runs]
        found |= mean_and_error(f"answers_{target:.0%}".rstrip("%"), needed)
    return found


def measure(folder: Path, half: str, tasks: int, jobs: int) -> list[Found]:
    kinds = product(("birds40", "mini-imagenet"), ("few kinds", "many kinds"), (ONE, NONE))
    held = []
    with ProcessPoolExecutor(jobs) as pool:
        for data, strangers, start in kinds:
            cell = Cell(data, WAY, 1, strangers)
            wanted = [(cell, start, rule, seed) for rule in RULES for seed in range(tasks)]
            runs = list(pool.map(partial(one_task, folder, half), wanted))
            by_rule = {r: runs[i * tasks : (i + 1) * tasks] for i, r in enumerate(RULES)}
            rules = {rule: summary(own) for rule, own in by_rule.items()}
            pile = mean_and_error("pile", [run["pile"] for run in runs[:tasks]])["pile"]
            entry = {"data": data, "strangers": strangers, "start": start, "pile": pile}
            held.append(
                {**entry, "tasks": tasks, "rules": {**rules, BY_HAND: by_hand(runs[:tasks])}}
            )
            print("\n".join(lines(held[-1])), flush=True)
    return held


def lines(entry: Found) -> list[str]:
    name = (
        f"{entry['data']:13} {entry['strangers']:10} {entry['start']:19} pile {entry['pile']:5.0f}"
    )
    return [f"{name}  {rule:16} {answers(found)}" for rule, found in entry["rules"].items()]


def answers(found: Found) -> str:
    texts = [f"{found[f'answers_{n}']:.0f} ± {found[f'answers_{n}_error']:.0f}" for n in (95, 98)]
    return "; ".join(texts)


# The page


def table(held: list[Found]) -> str:
    head = [
        "pile",
        "strangers",
        "start",
        "right",
        *RULES,
        BY_HAND,
        "look through",
        "from the start",
    ]
    rows = []
    for entry, target in product(held, (95, 98)):
        rules = entry["rules"]
        row = ["", "", "", f"{target} %"]
        if target == 95:
            row[:3] = f"{entry['data']}, {entry['pile']:.0f}", entry["strangers"], entry["start"]
        for rule in (*RULES, BY_HAND):
            mean, error = (rules[rule][f"answers_{target}{end}"] for end in ("", "_error"))
            row.append(f"{mean:.0f} ± {error:.0f}" if rule != BY_HAND else f"{mean:.0f}")
        mine = rules[OURS]
        more = [f"{mine[k]:.0f} ± {mine[f'{k}_error']:.0f}" for k in ("look_through", "at_once")]
        rows.append(row + (more if target == 95 else ["", ""]))
    return markdown(head, rows)


def plot(held: list[Found], path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    shown = [entry for entry in held if entry["start"] == ONE]
    figure, axes = plt.subplots(1, len(shown), figsize=(3.1 * len(shown), 3.2), sharey=True)
    styles = {OURS: ("#0b6e4f", "-"), UNCERTAIN: ("#c1666b", "--"), RANDOM: ("#666666", ":")}
    for axis, entry in zip(np.atleast_1d(axes), shown, strict=True):
        for rule, (color, style) in styles.items():
            right = entry["rules"][rule]["right"]
            given = entry["rules"][rule]["from"] + BATCH * np.arange(len(right))
            axis.plot(given, 100 * np.array(right), style, color=color, label=rule, linewidth=1.8)
        axis.plot([0, entry["pile"]], [0, 100], "-.", color="#bbbbbb", label=BY_HAND)
        axis.axhline(95, color="#dddddd", linewidth=0.8, zorder=0)
        axis.set(ylim=(50, 100), xlim=(0, entry["pile"]), xlabel="answers")
        axis.set_title(
            f"{entry['data']}, {entry['strangers']}\npile of {entry['pile']:.0f}", fontsize=9
        )
        axis.spines[["top", "right"]].set_visible(False)
    np.atleast_1d(axes)[0].set_ylabel("right in the pile, %")
    np.atleast_1d(axes)[-1].legend(loc="lower right", fontsize=8, frameon=False)
    figure.tight_layout()
    figure.savefig(path, dpi=110, metadata={"Software": None})
    plt.close(figure)


def fill(document: str, result: Found) -> str:
    return between(document, BEGIN, END, [table(result["cells"])])


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("features", type=Path, nargs="?", help="of stranger_tasks.features")
    parser.add_argument("--half", choices=("choose", "report"), default="choose")
    parser.add_argument("--tasks", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, help="default for report: results/answers.json")
    parser.add_argument("--page", action="store_true", help="fill the page from stored results")
    given = parser.parse_args(arguments)
    if given.page:
        result = read_json(given.out or RESULTS)
        PAGE.write_text(fill(PAGE.read_text(encoding="utf-8"), result), encoding="utf-8")
        plot(result["cells"], PLOT)
        return
    if given.features is None:
        parser.error("FOLDER with features is missing; make one with `-m stranger_tasks.features`")
    held = measure(given.features, given.half, given.tasks, given.jobs)
    out = given.out or (RESULTS if given.half == "report" else None)
    if out is not None:
        about = about_tasks("answers", half=given.half, way=WAY, reject=REJECT, batch=BATCH)
        write_lines(out, {**about, "cells": held})


if __name__ == "__main__":
    main()
