"""What is said of a sorted pile: a few lines for the terminal, and the page with the pictures."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from semishot.data.decoding import opened, quiet
from semishot.data.thumbnails import thumbnail
from semishot.errors import InputError, printable
from semishot.sorter.embedding import read_image
from semishot.sorter.journal import SORTED
from semishot.sorter.listing import Item
from semishot.sorter.page import LABELED_SHOWN, SortedImage, write_page
from semishot.sorter.predictions import IRRELEVANT, Prediction

__all__ = ["REPORT", "as_lines", "write_report"]

REPORT = "report.html"
SHOWN_CLASSES = 50


def as_lines(out: Path, facts: dict[str, Any], problems: Sequence[str]) -> list[str]:
    """Plainly: what was done, what was found, what to look at."""
    where = printable(str(out))
    if "completed" in facts:
        lines = [
            f"The interrupted sorting is complete: {facts['completed']:,} files in {where}/{SORTED}."
        ]
        return lines + _troubles(problems)
    labeled, accepted = facts["labeled"], facts["accepted"]
    count = sum(labeled.values())
    lines = [
        f"{count:,} labeled images of {len(labeled):,} classes, {facts['pile']:,} images in the pile, "
        f"seen by the encoder {printable(facts['encoder'])}."
    ]
    names = sorted(accepted, key=lambda name: -accepted[name])
    wide = max(len(printable(name)) for name in names[:SHOWN_CLASSES])
    lines += [f"  {printable(n):{wide}}  {accepted[n]:>7,}" for n in names[:SHOWN_CLASSES]]
    if len(names) > SHOWN_CLASSES:
        lines.append(f"  and {len(names) - SHOWN_CLASSES:,} more classes")
    lines += [*_verdict(facts), *(f"Note: {note}." for note in facts["notes"])]
    if facts["skipped"]:
        lines.append(f"{facts['skipped']:,} files were skipped: {where}/skipped.csv says why.")
    lines.append(f"Look at {where}/{REPORT}; all predictions are in {where}/predictions.csv.")
    if "apply" in facts:
        done = {"move": "moved", "copy": "copied", "link": "linked"}[facts["apply"]]
        lines.append(f"The pile was {done} to {where}/{SORTED}; `semishot undo {where}` undoes it.")
    return lines + _troubles(problems)


def _verdict(facts: dict[str, Any]) -> list[str]:
    """Irrelevant images, the pile's use, and whether probabilities can be trusted."""
    if facts["irrelevant"] is None:
        first = (
            "Which images are irrelevant cannot be told: it takes two labeled images of some class, "
            "or two in the pile that differ."
        )
    else:
        share = facts["reject"]
        first = (
            f"{facts['irrelevant']:,} look irrelevant: they lie farther out than all but {share:.0%} of "
            "true members would."
        )
    lines = [first, f"The pile: {facts['message']}."]
    if (held := facts["held_out"]) is not None:
        lines.append(
            f"Calibration: of {held['examples']:,} held-out labeled images {held['accuracy']:.0%} are "
            f"right, at a mean probability of {held['probability']:.0%}."
        )
    else:
        lines.append("Calibration: not known, as no labeled image can be held out.")
    return lines


def _troubles(problems: Sequence[str]) -> list[str]:
    return [f"Not sorted: {printable(problem)}" for problem in problems]


def write_report(
    path: Path,
    labeled: Sequence[Item],
    predictions: Sequence[Prediction],
    next_to_label: Sequence[int],
    facts: dict[str, Any],
) -> None:
    """The page; pictures are read once more, only those it shows."""
    examples: dict[str, list[bytes]] = {name: [] for name in facts["accepted"]}
    images = [
        SortedImage(
            p.item.shown,
            p.label,
            p.probability,
            p.runner_up,
            p.distractor_score,
            p.decision == IRRELEVANT,
        )
        for p in predictions
    ]
    with quiet():
        for item in labeled:
            own = examples[str(item.label)]
            if len(own) < LABELED_SHOWN and (picture := _thumbnail(item)) is not None:
                own.append(picture)
        summary = {"Encoder": facts["encoder"], "Verdict": " ".join(_verdict(facts))}
        if facts["notes"]:
            summary["Notes"] = "; ".join(facts["notes"])
        if facts["skipped"]:
            summary["Skipped"] = f"{facts['skipped']:,} files; skipped.csv says why"
        write_page(
            path,
            images,
            examples,
            next_to_label,
            lambda i: _thumbnail(predictions[i].item),
            summary,
        )


def _thumbnail(item: Item) -> bytes | None:
    """None for a row of features, and for a file that has changed since."""
    if item.path is None:
        return None
    try:
        with opened(read_image(item.path), "it") as image:
            return thumbnail(image)
    except InputError:
        return None
