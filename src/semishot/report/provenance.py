"""Records -> how, where and when they were measured."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from semishot.errors import counted
from semishot.report.section import Provenance
from semishot.training.config import Recipe
from semishot.training.records import Record


def provenance(records: Sequence[Record]) -> Provenance:
    recipes = [r["recipe"] for r in records if r["updates"]]
    trained = [r["training"]["seconds"] for r in records if "training" in r]
    settings = {
        "test episodes": (_episode(r) for r in records),
        "episodes per split": (str(r["episodes"]) for r in records),
        "training episodes": (_episode(r["train"]) for r in records if "way" in r["train"]),
        "recipe": (as_pairs(Recipe().as_dict() | recipe) for recipe in recipes),
        "training of a fleet": [_range(trained)] if trained else [],
        "typed": (r["command"] for r in records if "command" in r),
    }
    return Provenance(
        devices=_each(r["device"] for r in records),
        versions=_each(as_pairs(r["versions"]) for r in records),
        dates=_each(day_of(r["date"]) for r in records),
        code=code_and_data(records),
        mixed=differences(records),
        is_old=any("code" not in r for r in records),
        split_seeds=split_seeds(records),
        settings=[(name, "; ".join(_each(texts))) for name, texts in settings.items()],
        wall_time=_range([r["seconds"] for r in records]),
    )


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
    said = {
        name: [f"{value} ({counted(count, 'record')})" for value, count in counts.items()]
        for name, counts in states.items()
    }
    return [f"{name} {' and '.join(each)}" for name, each in said.items() if len(each) > 1]


def code_and_data(records: Sequence[Record]) -> str:
    """As in `code 0123456789ab (commit fedcba987654), data 0011223344556677`, with every value."""
    codes = _each(
        r["code"] + (f" (commit {r['commit']})" if "commit" in r else "")
        for r in records
        if "code" in r
    )
    data = _each(r["data"] for r in records if "data" in r)
    both = [("code", codes), ("data", data)]
    return ", ".join(f"{name} {' and '.join(each)}" for name, each in both if each)


def day_of(date: str) -> str:
    """A date without the time, which older records do not have."""
    return date[:10] if date[10:11] == "T" else date


def split_seeds(records: Iterable[Record]) -> list[int]:
    return sorted({r["split_seed"] for r in records})


def _range(seconds: Sequence[float]) -> str:
    shortest, longest = min(seconds), max(seconds)
    return f"{shortest:,.1f} to {longest:,.1f} s" if shortest < longest else f"{shortest:,.1f} s"


def _each(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(texts))


def _episode(shape: Mapping[str, Any]) -> str:
    return (
        f"{shape['way']}-way {shape['shot']}-shot, {shape['query']} queries, M = {shape['unlabeled']}, "
        f"H = {shape['distractors']}"
    )


def as_pairs(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {_shown(value)}" for name, value in values.items())


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return " ".join(map(_shown, value)) or "none"
    return f"{value:,}" if isinstance(value, int) else str(value)
