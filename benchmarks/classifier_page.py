"""Fill docs/estimator.md with tables from results/classifier/: `python benchmarks/classifier_page.py`."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pages import between, versions_of
from speed_tables import markdown, number

ROOT = Path(__file__).parents[1]
PAGE, RESULTS = ROOT / "docs" / "estimator.md", ROOT / "results" / "classifier"
BEGIN, END = "<!-- classifier tables -->", "<!-- /classifier tables -->"
THEIRS = ("LabelSpreading", "LabelPropagation", "SelfTraining")
COLUMNS = ("supervised", "ours", "version 0.1", "ours, soft_kmeans", "ours, learned mask", *THEIRS)
FEATURES = {
    "omniglot": "Omniglot's test classes, 20 at a time, by `pretrained:omniglot` (64 features)",
    "mini-imagenet": "miniImageNet's test classes, 5 at a time, by EfficientNet-Lite0 (1,280 features)",
}

Result = dict[str, Any]
Row = dict[str, Any]


def cells(result: Result) -> dict[tuple[int, int, float], dict[str, Row]]:
    """(shot, pile, distractors) -> contender -> row."""
    found: dict[tuple[int, int, float], dict[str, Row]] = {}
    for row in result["rows"]:
        place = row["shot"], row["pile"], row["distractors"]
        found.setdefault(place, {})[row["contender"]] = row
    return found


def accuracies(result: Result) -> str:
    names = [name for name in COLUMNS if any(name in held for held in cells(result).values())]
    head = ["shots, pile, distractors", *names, "ours - supervised", "tasks"]
    rows = []
    for (shot, pile, share), held in cells(result).items():
        gain = f"{100 * held['ours']['gain']:+.2f} ± {100 * held['ours']['gain_ci95']:.2f}"
        values = [f"{100 * held[name]['accuracy']:.2f}" for name in names]
        tasks = str(held["ours"]["tasks"])
        rows.append([f"{shot}, {pile:,}, {share:.0%}", *values, gain, tasks])
    return markdown(head, rows)


def verdicts(result: Result) -> str:
    """Ours / version 0.1."""
    head = ["shots, pile, distractors", "ECE", "AUROC", "members lost", "strangers found"]
    rows = []
    for (shot, pile, share), held in cells(result).items():
        texts = []
        for name in ("ece", "auroc", "false_rejects", "found"):
            pair = [held[who].get(name) for who in ("ours", "version 0.1")]
            known = [f"{100 * value:.1f}" for value in pair if value is not None]
            texts.append(" / ".join(known))
        rows.append([f"{shot}, {pile:,}, {share:.0%}", *texts])
    return markdown(head, rows)


def shortfalls(result: Result) -> str:
    """The cells in which ours is below someone by more than the interval of the difference."""
    lines = []
    for (shot, pile, share), held in cells(result).items():
        ours, place = held["ours"], f"{shot} shots, pile {pile:,}, {share:.0%}"
        if ours["gain"] + ours["gain_ci95"] < 0:
            lines.append(f"{place}: below supervised by {-100 * ours['gain']:.2f}")
        best = max(THEIRS, key=lambda name: held[name]["accuracy"])
        if held[best]["accuracy"] > ours["accuracy"]:
            lines.append(
                f"{place}: {best} {100 * held[best]['accuracy']:.2f}, "
                f"ours {100 * ours['accuracy']:.2f}"
            )
    return "\n".join(f"- {line}" for line in lines) or "- none"


def seconds(result: Result) -> str:
    """Mean seconds of a fit, by size of the pile."""
    sizes = sorted({pile for _, pile, _ in cells(result)})
    names = ["ours", *THEIRS]
    rows = []
    for name in names:
        means = []
        for size in sizes:
            taken = [
                h[name]["seconds"] for (_, pile, _), h in cells(result).items() if pile == size
            ]
            means.append(number(1000 * sum(taken) / len(taken)))
        rows.append([name, *means])
    return markdown(["fit, ms", *(f"pile of {size:,}" for size in sizes)], rows)


def section(result: Result) -> str:
    about = f"{result['device']} ({result['processor']}); {versions_of(result)}; {result['date']}."
    return "\n\n".join(
        [
            f"### {FEATURES[result['dataset']]}",
            about,
            "Accuracy in %:",
            accuracies(result),
            "Cells in which the default is below supervised by more than the 95 % interval of the "
            "difference, or below one of scikit-learn's classifiers at all:",
            shortfalls(result),
            "Calibration and strangers, ours / version 0.1, in %, at `reject=0.05`:",
            verdicts(result),
            seconds(result),
        ]
    )


def fill(document: str, results: Sequence[Result]) -> str:
    return between(document, BEGIN, END, [section(result) for result in results])


def published() -> list[Result]:
    paths = sorted(RESULTS.glob("*.json"), reverse=True)  # Omniglot first
    results = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    return [result for result in results if result["benchmark"] == "classifier_accuracy"]


if __name__ == "__main__":
    text = fill(PAGE.read_text(encoding="utf-8"), published())
    PAGE.write_text(text, encoding="utf-8")
    print(PAGE)
