"""Answers until a pile is sorted: a user who knows the truth is asked about image after image.

    PYTHONPATH=benchmarks python -m pile_tasks.encode DATA FOLDER
    python benchmarks/answers.py FOLDER --half choose --out FILE    as often as you like
    python benchmarks/answers.py FOLDER                             once, when the rule is final
    python benchmarks/answers.py --page                             fills docs/answers.md

Ten classes of birds, groceries (to choose only) or miniImageNet, 300 images in the pile. The user has one
labeled image of each class, or none: then the first answers are about varied images. Five images are chosen
and answered, the pile is judged anew, and so on until 98 % are right, or 200 were answered. An image is right
if it was answered, or if its likeliest answer, a class or a stranger, is true. After each answer, `expected`
is how many are likely still wrong. Where our rule has no more questions is noted; it then goes on with what
is most doubtful. `kinds`: of the classes that nobody has named, the share of which a group is proposed that
is at least 80 % pure: classes of at least five images.
"""

import argparse
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from measurement import about_tasks
from pages import between, markdown, write_lines
from pile_tasks.domains import Domain, domains
from pile_tasks.tasks import Shape, Task, draw
from semishot.estimator.kinds import find_kinds
from semishot.estimator.labels import NAMED_STRANGER, UNLABELED
from semishot.estimator.next_labels import WORTH_FROM, question_worth, varied, worth_asking
from semishot.estimator.pile import LabeledPile
from semishot.system.files import read_json

PAGE = Path(__file__).parents[1] / "docs" / "answers.md"
RESULTS = Path(__file__).parents[1] / "results" / "answers.json"
BEGIN, END = "<!-- answers -->", "<!-- /answers -->"
WAY, PILE, BATCH, FIRST, MOST = 10, 300, 5, 24, 200
TARGETS = (0.95, 0.98)
MOMENTS = (0, 20, 40, 80, 120)
"""Numbers of answers at which the curve is reported."""
ONE, NONE = "one label per class", "no label"
OURS, RANDOM = "ours", "random"
PILES = {
    "balanced": Shape(WAY, 1, PILE),
    "unbalanced": Shape(WAY, 1, PILE, balanced=False),
    "half strangers, few kinds": Shape(WAY, 1, PILE, 0.5, "few", balanced=False),
    "half strangers, many kinds": Shape(WAY, 1, PILE, 0.5, "many", balanced=False),
}
PURE, NAMED, LEAST = 0.8, (0, 5), 5
"""What makes a group one of a class; how many of the ten classes have a name; images of a class that
must be found."""
Array = NDArray[Any]
Found = dict[str, Any]


class Asked(NamedTuple):
    """What a rule chooses from."""

    pile: LabeledPile
    joint: Array  # (P, N + 1)
    allowed: Array  # (P,)
    rng: np.random.Generator


def ours(asked: Asked) -> Array:
    worth = np.where(asked.allowed, question_worth(asked.joint), 0.0)
    return worth_asking(asked.pile.features, asked.pile.space, worth, BATCH)


def most(score: Array, asked: Asked) -> Array:
    """The allowed rows of the highest score."""
    ranking: Array = np.argsort(np.where(asked.allowed, -score, np.inf), kind="stable")
    return ranking[: min(BATCH, asked.allowed.sum())]


def entropy(asked: Asked) -> Array:
    """Over all classes and stranger."""
    return most(-(asked.joint * np.log(np.maximum(asked.joint, 1e-12))).sum(1), asked)


def smallest_margin(joint: Array) -> Array:
    ordered = np.sort(joint, 1)
    return ordered[:, -2] - ordered[:, -1] if joint.shape[1] > 1 else -ordered[:, -1]


def margin(asked: Asked) -> Array:
    """Between the two likeliest classes."""
    classes = asked.joint[:, :-1]
    return most(smallest_margin(classes / np.maximum(classes.sum(1, keepdims=True), 1e-12)), asked)


def margin_with_stranger(asked: Asked) -> Array:
    """Between the two likeliest answers."""
    return most(smallest_margin(asked.joint), asked)


def at_random(asked: Asked) -> Array:
    return asked.rng.permutation(np.flatnonzero(asked.allowed))[:BATCH]


RULES: dict[str, Callable[[Asked], Array]] = {
    OURS: ours,
    "entropy": entropy,
    "margin": margin,
    "margin + stranger": margin_with_stranger,
    RANDOM: at_random,
}


def play(task: Task, start: str, rule: str, seed: int, of_names: Array | None = None) -> Found:
    """Answer until 98 % are right: a moment is (answers, share right, expected wrong, wrong). With features
    of the classes' names, the pile is judged before the first answer."""
    rng, pile, truth = np.random.default_rng(seed), LabeledPile(task.features), task.truth
    labels = task.labels.copy() if start == ONE else np.full(len(truth), UNLABELED)
    given = labels != UNLABELED
    if start == NONE and of_names is None:
        shuffled = rng.permutation(len(truth))[:FIRST]
        first = shuffled if rule == RANDOM else varied(task.features, pile.space, FIRST)
        labels[first] = answers_of(truth[first])
    found: Found = {"curve": [], "pile": int((~given).sum())}
    while True:
        names, joint = judged(pile, labels, of_names)
        doubt = 1 - joint.max(1)
        allowed = labels == UNLABELED
        wrong = allowed & (np.append(names, -1)[joint.argmax(1)] != truth)
        count, right = int((~allowed).sum() - given.sum()), 1 - wrong.sum() / (~given).sum()
        moment = (count, float(right), float(doubt[allowed].sum()), int(wrong.sum()))
        found["curve"].append(moment)
        if doubt[allowed].max(initial=0) < WORTH_FROM:
            found.setdefault("stop", moment)
        if (right >= TARGETS[-1] and ("stop" in found or rule != OURS)) or count >= MOST:
            return found
        rows = RULES[rule](Asked(pile, joint, allowed, rng))
        labels[rows] = answers_of(truth[rows])


def answers_of(truth: Array) -> Array:
    return np.where(truth < 0, NAMED_STRANGER, truth)


def judged(pile: LabeledPile, labels: Array, of_names: Array | None = None) -> tuple[Array, Array]:
    """The classes that have labels or names, and the N + 1 probabilities."""
    names, compact = np.arange(0 if of_names is None else len(of_names)), labels
    if of_names is None:
        names, places = np.unique(labels[labels >= 0], return_inverse=True)
        compact = labels.copy()
        compact[labels >= 0] = places
    answer = pile.learn(compact, names=of_names).answer
    assert answer is not None
    return names, answer.joint


def kinds_of(task: Task, named: int) -> Found:
    """Of the classes beyond the first `named`, the share that is proposed; groups; how many are pure."""
    truth, pile = task.truth, LabeledPile(task.features)
    stranger = None
    labels = np.where(task.labels < named, task.labels, UNLABELED)
    if named:
        stranger = np.where(labels == UNLABELED, judged(pile, labels)[1][:, -1], 0.0)
    classes, sizes = np.unique(truth[(truth >= named) & (labels == UNLABELED)], return_counts=True)
    unnamed = classes[sizes >= LEAST]
    shares = []
    for kind in find_kinds(task.features, pile.space, stranger):
        names, sizes = np.unique(truth[kind.rows], return_counts=True)
        shares.append((int(names[sizes.argmax()]), sizes.max() / sizes.sum()))
    proposed = {name for name, share in shares if share >= PURE}
    return {
        "proposed": len(proposed & set(unnamed.tolist())) / max(1, len(unnamed)),
        "groups": len(shares),
        "pure": float(np.mean([share >= PURE for _, share in shares])) if shares else 0.0,
    }


@cache
def sources(folder: Path, half: str) -> dict[str, Domain]:
    """Photographs by the encoder `photos`; read once by each process."""
    found = {
        one.name.partition(",")[0]: one for one in domains(folder, half) if "photos" in one.name
    }
    return {name: one for name, one in found.items() if one.kind == "photographs"}


def drawn(folder: Path, half: str, data: str, pile: str, seed: int) -> Task:
    number = [seed, [*PILES].index(pile)]
    return draw(sources(folder, half)[data], PILES[pile], np.random.default_rng(number))


def one_run(folder: Path, half: str, of: tuple[str, str, str, str, int]) -> Found:
    threadpool_limits(1)
    data, pile, start, rule, seed = of
    return play(drawn(folder, half, data, pile, seed), start, rule, seed)


def one_search(folder: Path, half: str, of: tuple[str, str, int, int]) -> Found:
    threadpool_limits(1)
    data, pile, named, seed = of
    return kinds_of(drawn(folder, half, data, pile, seed), named)


def answers_to(run: Found, target: float) -> int:
    """Between two moments, in proportion."""
    before = run["curve"][0]
    for moment in run["curve"]:
        if moment[1] >= target:
            step = (
                (target - before[1]) / max(moment[1] - before[1], 1e-9) if before != moment else 0
            )
            return round(before[0] + step * (moment[0] - before[0]))
        before = moment
    return MOST


def summary(runs: list[Found]) -> Found:
    found: Found = {}
    for target in TARGETS:
        needed = np.array([answers_to(run, target) for run in runs])
        error = needed.std(ddof=1) / len(needed) ** 0.5 if len(needed) > 1 else 0.0
        found[f"to_{100 * target:.0f}"] = [round(float(needed.mean()), 1), round(float(error), 1)]
    columns = [list(zip(*run["curve"], strict=True)) for run in runs]
    for place, name in ((1, "right"), (2, "expected"), (3, "wrong")):
        each = [np.interp(MOMENTS, column[0], column[place]) for column in columns]
        found[name] = np.mean(each, 0).round(3).tolist()
    if stops := [run["stop"] for run in runs if "stop" in run]:
        found["stop"] = [*np.mean(stops, 0).round(3).tolist(), len(stops)]
    return found


def measure(folder: Path, half: str, tasks: int, jobs: int) -> Found:
    data = [*sources(folder, half)]
    cells, kinds, seeds = [], [], range(tasks)
    with ProcessPoolExecutor(jobs) as pool:
        for name, pile, start in product(data, PILES, (ONE, NONE)):
            wanted = [(name, pile, start, rule, seed) for rule in RULES for seed in seeds]
            runs = list(pool.map(partial(one_run, folder, half), wanted))
            rules = {r: summary(runs[i * tasks :][:tasks]) for i, r in enumerate(RULES)}
            cells.append({"data": name, "pile": pile, "start": start, "rules": rules})
            said = (
                f"{rule} {found['to_95'][0]:.0f} {found['to_98'][0]:.0f}"
                for rule, found in rules.items()
            )
            print(
                f"{name:12} {pile:27} {start:20}",
                *said,
                rules[OURS].get("stop"),
                sep="  ",
                flush=True,
            )
        for name, pile, named in product(data, PILES, NAMED):
            wanted = [(name, pile, named, seed) for seed in seeds]
            found = list(pool.map(partial(one_search, folder, half), wanted))
            means = {key: round(float(np.mean([one[key] for one in found])), 3) for key in found[0]}
            kinds.append({"data": name, "pile": pile, "named": named, **means})
            print(kinds[-1], flush=True)
    return {"tasks": tasks, "cells": cells, "kinds": kinds}


# The page


def answers_table(cells: list[Found]) -> str:
    rows = []
    for cell in cells:
        each = [cell["rules"][rule] for rule in RULES]
        texts = [f"{one['to_95'][0]:.0f} / {one['to_98'][0]:.0f}" for one in each]
        rows.append([f"{cell['data']}, {cell['pile']}", cell["start"], *texts])
    return markdown(["pile", "start", *RULES], rows)


def stop_table(cells: list[Found]) -> str:
    """Means over all cells: what is expected, what is true, and where questions end."""
    mine = [cell["rules"][OURS] for cell in cells]
    means = {key: np.mean([one[key] for one in mine], 0) for key in ("right", "expected", "wrong")}
    rows = [
        [str(count), f"{100 * right:.1f} %", f"{expected:.1f}", f"{wrong:.1f}"]
        for count, right, expected, wrong in zip(MOMENTS, *means.values(), strict=True)
    ]
    stops = np.mean([one["stop"][:4] for one in mine if "stop" in one], 0)
    ends = [f"{stops[0]:.0f}, no more questions", f"{100 * stops[1]:.1f} %"]
    rows.append([*ends, f"{stops[2]:.1f}", f"{stops[3]:.1f}"])
    return markdown(["answers", "right", "likely still wrong", "wrong"], rows)


def kinds_table(kinds: list[Found]) -> str:
    rows = [
        [
            *(f"{one['data']}, {one['pile']}", f"{one['named']} of {WAY}"),
            *(
                f"{100 * one['proposed']:.0f} %",
                f"{one['groups']:.0f}",
                f"{100 * one['pure']:.0f} %",
            ),
        ]
        for one in kinds
    ]
    head = ["pile", "classes with a name", "unnamed classes proposed", "groups", "of them pure"]
    return markdown(head, rows)


def fill(document: str, result: Found) -> str:
    tables = [
        answers_table(result["cells"]),
        stop_table(result["cells"]),
        kinds_table(result["kinds"]),
    ]
    return between(document, BEGIN, END, tables)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("features", type=Path, nargs="?", help="of pile_tasks.encode")
    parser.add_argument("--half", choices=("choose", "report"), default="report")
    parser.add_argument("--tasks", type=int, default=6)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, help="default for report: results/answers.json")
    parser.add_argument("--page", action="store_true", help="fill the page from stored results")
    given = parser.parse_args(arguments)
    if given.page:
        result = read_json(given.out or RESULTS)
        PAGE.write_text(fill(PAGE.read_text(encoding="utf-8"), result), encoding="utf-8")
        return
    if given.features is None:
        parser.error("FOLDER with features is missing; make one with `-m pile_tasks.encode`")
    found = measure(given.features, given.half, given.tasks, given.jobs)
    out = given.out or (RESULTS if given.half == "report" else None)
    if out is not None:
        about = about_tasks("answers", half=given.half, way=WAY, pile=PILE, batch=BATCH)
        write_lines(out, {**about, **found})


if __name__ == "__main__":
    main()
