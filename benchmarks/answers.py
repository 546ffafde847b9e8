"""Answers until a pile is sorted: a user who knows the truth is asked about image after image.

    PYTHONPATH=benchmarks python -m pile_tasks.encode DATA FOLDER
    python benchmarks/answers.py FOLDER --half choose --out FILE    as often as you like
    python benchmarks/answers.py FOLDER                             once, when the rule is final
    python benchmarks/answers.py --page                             fills docs/answers.md

Ten classes of birds, groceries (to choose only) or miniImageNet, 300 images in the pile. The user has one
labeled image of each class, or none: then the first answers are about the most typical image of each kind
(random images for `random`). Five images are chosen and answered, the pile is judged anew, and so on until
98 % are right, or 200 were answered. An image is right if it was answered, or if its likeliest answer, a
class or a stranger, is true. After each answer, `expected` is how many are likely still wrong. Where our rule
has no more questions is noted; it then goes on with what is most doubtful. `kinds`: of the classes that
nobody has named and that have five images, the share of which a group is proposed that is 80 % pure.
"""

import argparse
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from measurement import about_tasks
from pages import between, markdown, write_lines
from pile_tasks.domains import Domain, domains
from pile_tasks.tasks import Shape, Task, draw
from semishot.estimator.kinds import find_kinds
from semishot.estimator.labels import NAMED_STRANGER, UNLABELED
from semishot.estimator.next_labels import WORTH_FROM, question_worth, worth_asking
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
RULES = ("ours", "entropy", "margin", "margin + stranger", "random")
OURS, RANDOM = RULES[0], RULES[-1]
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


def chosen(
    rule: str, pile: LabeledPile, joint: Array, allowed: Array, rng: np.random.Generator
) -> Array:
    """The rows to ask about, by the N + 1 probabilities (P, N + 1), among those allowed (P,)."""
    if rule == RANDOM:
        return rng.permutation(np.flatnonzero(allowed))[:BATCH]
    if rule == OURS:
        worth = np.where(allowed, question_worth(joint), 0.0)
        return worth_asking(pile.features, pile.space, worth, BATCH)
    if rule == "entropy":  # over all classes and stranger
        score = -(joint * np.log(np.maximum(joint, 1e-12))).sum(1)
    else:  # between the two likeliest answers, or classes
        members = np.maximum(joint[:, :-1].sum(1, keepdims=True), 1e-12)
        answers = joint if "stranger" in rule else joint[:, :-1] / members
        ordered = np.sort(np.column_stack([np.zeros(len(joint)), answers]), 1)
        score = ordered[:, -2] - ordered[:, -1]
    ranking: Array = np.argsort(np.where(allowed, -score, np.inf), kind="stable")
    return ranking[: min(BATCH, allowed.sum())]


def play(task: Task, start: str, rule: str, seed: int, of_names: Array | None = None) -> Found:
    """Answer until 98 % are right: a moment is (answers, share right, expected wrong, wrong). With features
    of the classes' names, the pile is judged before the first answer."""
    rng, pile = np.random.default_rng(seed), LabeledPile(task.features)
    truth = np.where(task.truth < 0, NAMED_STRANGER, task.truth)
    labels = task.labels.copy() if start == ONE else np.full(len(truth), UNLABELED)
    given = labels != UNLABELED
    if start == NONE and of_names is None:
        typical = [kind.rows[0] for kind in find_kinds(task.features, pile.space)][:FIRST]
        first = rng.permutation(len(truth))[:FIRST] if rule == RANDOM else typical
        labels[first] = truth[first]
    found: Found = {"curve": [], "pile": int((~given).sum())}
    while True:
        names, joint = judged(pile, labels, of_names)
        doubt = 1 - joint.max(1)
        allowed = labels == UNLABELED
        wrong = allowed & (np.append(names, NAMED_STRANGER)[joint.argmax(1)] != truth)
        count, right = int((~allowed).sum() - given.sum()), 1 - wrong.sum() / (~given).sum()
        moment = (count, float(right), float(doubt[allowed].sum()), int(wrong.sum()))
        found["curve"].append(moment)
        if doubt[allowed].max(initial=0) < WORTH_FROM:
            found.setdefault("stop", moment)
        if (right >= TARGETS[-1] and ("stop" in found or rule != OURS)) or count >= MOST:
            return found
        rows = chosen(rule, pile, joint, allowed, rng)
        labels[rows] = truth[rows]


def judged(pile: LabeledPile, labels: Array, of_names: Array | None = None) -> tuple[Array, Array]:
    """The classes that have labels or names, and the N + 1 probabilities."""
    names = np.unique(labels[labels >= 0]) if of_names is None else np.arange(len(of_names))
    compact = np.where(labels >= 0, np.searchsorted(names, labels), labels)
    _, answer = pile.learn(compact, names=of_names)
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
    photographs = [one for one in domains(folder, half) if one.kind == "photographs"]
    parts = [(*one.name.split(", "), one) for one in photographs]
    return {name: one for name, encoder, one in parts if encoder == "photos"}


def drawn(folder: Path, half: str, data: str, pile: str, seed: int) -> Task:
    rng = np.random.default_rng([seed, [*PILES].index(pile)])
    return draw(sources(folder, half)[data], PILES[pile], rng)


def one_task(folder: Path, half: str, case: tuple[str, str, tuple[str, str] | int, int]) -> Found:
    """A pile played from a start by a rule, or searched for kinds when so many classes have a name."""
    threadpool_limits(1)
    data, pile, how, seed = case
    task = drawn(folder, half, data, pile, seed)
    return kinds_of(task, how) if isinstance(how, int) else play(task, *how, seed)


def answers_to(run: Found, target: float) -> int:
    """Between two moments, in proportion."""
    answers, right, *_ = zip(*run["curve"], strict=True)
    best = np.maximum.accumulate(right)
    return round(float(np.interp(target, best, answers))) if best[-1] >= target else MOST


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
    cells, kinds = [], []
    piles = list(product(sources(folder, half), PILES))
    ways = [*product((ONE, NONE), RULES), *NAMED]
    cases = [(*pile, how, seed) for pile in piles for how in ways for seed in range(tasks)]
    with ProcessPoolExecutor(jobs) as pool:
        results = pool.map(partial(one_task, folder, half), cases)
        for data, pile in piles:
            for start in (ONE, NONE):
                rules = {rule: summary([next(results) for _ in range(tasks)]) for rule in RULES}
                cells.append({"data": data, "pile": pile, "start": start, "rules": rules})
                print({rule: (one["to_95"], one["to_98"]) for rule, one in rules.items()})
            for named in NAMED:
                each = [next(results) for _ in range(tasks)]
                means = {k: np.mean([one[k] for one in each]).round(3).item() for k in each[0]}
                kinds.append({"data": data, "pile": pile, "named": named, **means})
                print(kinds[-1], flush=True)
    return {"tasks": tasks, "cells": cells, "kinds": kinds}


def fill(document: str, result: Found) -> str:
    """With three tables: answers needed; what is likely still wrong in the mean over all cells; kinds."""
    rows = []
    for cell in result["cells"]:
        each = (cell["rules"][rule] for rule in RULES)
        texts = (f"{one['to_95'][0]:.0f} / {one['to_98'][0]:.0f}" for one in each)
        rows.append([f"{cell['data']}, {cell['pile']}", cell["start"], *texts])
    tables = [markdown(["pile", "start", *RULES], rows)]
    mine = [cell["rules"][OURS] for cell in result["cells"]]
    means = (np.mean([one[key] for one in mine], 0) for key in ("right", "expected", "wrong"))
    moments = [[str(each[0]), *each[1:]] for each in zip(MOMENTS, *means, strict=True)]
    stop = np.mean([one["stop"][:4] for one in mine if "stop" in one], 0)
    moments.append([f"{stop[0]:.0f}, no more questions", stop[1], *stop[2:]])
    rows = [[at, f"{100 * right:.1f} %", f"{x:.1f}", f"{y:.1f}"] for at, right, x, y in moments]
    tables.append(markdown(["answers", "right", "likely still wrong", "wrong"], rows))
    rows = []
    for one in result["kinds"]:
        proposed, pure = (f"{100 * one[key]:.0f} %" for key in ("proposed", "pure"))
        name = f"{one['data']}, {one['pile']}"
        rows.append([name, f"{one['named']} of {WAY}", proposed, f"{one['groups']:.0f}", pure])
    head = ["pile", "classes with a name", "unnamed classes proposed", "groups", "of them pure"]
    return between(document, BEGIN, END, [*tables, markdown(head, rows)])


def command(
    doc: str | None,
    results: Path,
    measured: Callable[[Path, str, int, int], Found],
    filled: Callable[[str, Found], str],
    arguments: Sequence[str] | None = None,
    **about: object,
) -> None:
    """The command line: measures, or fills the page from what is stored. Shared with names.py."""
    parser = argparse.ArgumentParser(description=(doc or "").splitlines()[0])
    parser.add_argument("features", type=Path, nargs="?", help="of pile_tasks.encode")
    parser.add_argument("--half", choices=("choose", "report"), default="report")
    parser.add_argument("--tasks", type=int, default=6)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, help=f"default for report: results/{results.name}")
    parser.add_argument("--page", action="store_true", help="fill the page from stored results")
    given = parser.parse_args(arguments)
    if given.page:
        result = read_json(given.out or results)
        PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), result), encoding="utf-8")
        return
    if given.features is None:
        parser.error("FOLDER with features is missing; make one with `-m pile_tasks.encode`")
    found = measured(given.features, given.half, given.tasks, given.jobs)
    out = given.out or (results if given.half == "report" else None)
    if out is not None:
        write_lines(out, {**about_tasks(results.stem, half=given.half, **about), **found})


if __name__ == "__main__":
    command(__doc__, RESULTS, measure, fill, way=WAY, pile=PILE, batch=BATCH)
