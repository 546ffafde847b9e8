"""Records -> how, where and when they were measured, on which images, and how to prepare these."""

import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from semishot.data.settings import AUTHORS, VARIANTS, DatasetVariant
from semishot.errors import counted
from semishot.training.config import Recipe
from semishot.training.records import Record

SAME_CODE = {"54863a11deaf": "fe82c0742167", "7ceacc5aeb3d": "fe82c0742167"}
"""Commits that published records name but the history lacks, each with one in the history whose code
has the same digest."""


def provenance(records: Sequence[Record]) -> dict[str, str]:
    """By name, with every value that occurs."""
    trained = [r["training"]["seconds"] for r in records if "training" in r]
    recipes = (r["recipe"] for r in records if r["updates"])
    facts: dict[str, Iterable[str]] = {
        "split seeds": [f"Split seeds {_range(split_seeds(records), '{}')}"],
        "test episodes": (_episode(r) for r in records),
        "episodes per split": (str(r["episodes"]) for r in records),
        "training episodes": (_episode(r["train"]) for r in records if "way" in r["train"]),
        "recipe": (as_pairs(Recipe().as_dict() | recipe) for recipe in recipes),
        "training of a fleet": [f"{_range(trained)} s"] if trained else [],
        "typed": (r["command"] for r in records if "command" in r),
        "device": (r["device"] for r in records),
        "code and data": [code_and_data(records)],
        "mixed": differences(records),
        "versions": (as_pairs(r["versions"]) for r in records),
        "date": sorted(day_of(r["date"]) for r in records),
        "wall time": [f"{_range([r['seconds'] for r in records])} s"],
    }
    joined = {name: "; ".join(_each(texts)) for name, texts in facts.items()}
    return {name: text for name, text in joined.items() if text}


STATES: dict[str, Callable[[Record], str | None]] = {
    "code": lambda r: r.get("code", "not named"),
    "code of the training": lambda r: r["training"]["code"] if "training" in r else None,
    "data": lambda r: r.get("data", "not named"),
    "device": lambda r: r["device"],
    "device of the training": lambda r: r["training"]["device"] if "training" in r else None,
}
"""What should be one for all records of a table; None where a record has none."""


def differences(records: Sequence[Record]) -> list[str]:
    """For each part of the state that is not one: its values, with the number of records of each."""
    states: dict[str, Counter[str]] = {
        name: Counter(value for r in records if (value := state(r)) is not None)
        for name, state in STATES.items()
    }
    for name in _each(name for r in records for name in r["versions"]):
        states[name] = Counter(r["versions"].get(name, "none") for r in records)
    values = {
        name: [f"{value} ({counted(count, 'record')})" for value, count in counts.items()]
        for name, counts in states.items()
    }
    return [f"{name} {' and '.join(each)}" for name, each in values.items() if len(each) > 1]


def code_and_data(records: Sequence[Record]) -> str:
    """As in `code 0123456789ab (commit fedcba987654), data 0011223344556677`, with every value."""
    codes = _each(
        r["code"] + (f" ({commit_of(r['commit'])})" if "commit" in r else "")
        for r in records
        if "code" in r
    )
    data = _each(r["data"] for r in records if "data" in r)
    both = [("code", codes), ("data", data)]
    return ", ".join(f"{name} {' and '.join(each)}" for name, each in both if each)


def commit_of(commit: str) -> str:
    same = SAME_CODE.get(commit)
    return f"commit {commit}" + (f", not in the history; same code: {same}" if same else "")


def day_of(date: str) -> str:
    """A date without its time."""
    return date.partition("T")[0]


def split_seeds(records: Iterable[Record]) -> list[int]:
    return sorted({r["split_seed"] for r in records})


def as_pairs(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {_shown(value)}" for name, value in values.items())


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return " ".join(map(_shown, value)) or "none"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _range(values: Sequence[float], form: str = "{:,.1f}") -> str:
    ends = [form.format(min(values)), form.format(max(values))]
    return " to ".join(_each(ends))


def _each(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(texts))


def _episode(shape: Mapping[str, Any]) -> str:
    return (
        f"{shape['way']}-way {shape['shot']}-shot, {shape['query']} queries, M = {shape['unlabeled']}, "
        f"H = {shape['distractors']}"
    )


# Which images

DATA_ROOT = "FOLDER"
"""What commands call a data root of its own."""
SOURCE_FLAGS = {"omniglot": "--download", "mini-imagenet": "--source IMAGES"}
AUTHORS_IMAGES = {
    "omniglot": "prepared as in the authors' code",
    "mini-imagenet": "with the classes that the first version of the authors' code tested on",
}


def prepared_as(records: Sequence[Record]) -> str:
    """The end of a title; empty for the usual images."""
    name = records[0].get("preparation")
    return f", images prepared `{name}`" if name else ""


def commands_for(records: Sequence[Record], command: str) -> list[str]:
    """The command on these images, after the one that prepares them if they are not the usual ones."""
    preparation = preparation_of(records)
    if preparation is None or not preparation.name:
        return [command]
    dataset, flags = preparation.dataset, shlex.join(preparation.flags)
    prepare = f"semishot data prepare {dataset} {SOURCE_FLAGS[dataset]} {flags}"
    return [f"{each} --data-root {DATA_ROOT}" for each in (prepare, command)]


def preparation_of(records: Sequence[Record]) -> DatasetVariant | None:
    """None for a data set that is prepared in one way."""
    return VARIANTS.get((records[0]["dataset"], records[0].get("preparation", "")))


def about_images(records: Sequence[Record]) -> list[str]:
    """Whether these images are those of the authors' code, where there are several kinds."""
    preparation = preparation_of(records)
    if preparation is None:
        return []
    how = f"images {AUTHORS_IMAGES[preparation.dataset]}"
    if preparation == AUTHORS[preparation.dataset]:
        return [f"On {how}: compare this table with the paper."]
    return [f"Not on {how} (`{AUTHORS[preparation.dataset].name}`)."]


def image_order(record: Record) -> tuple[int, str]:
    """The authors' images first, then the usual ones, then any others."""
    name, theirs = record.get("preparation", ""), AUTHORS.get(record["dataset"])
    return 0 if theirs and name == theirs.name else 2 if name else 1, name
