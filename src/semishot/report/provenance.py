"""Records -> how, where and when they were measured."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from semishot.report.section import Provenance
from semishot.training.config import Recipe
from semishot.training.records import Record


def provenance(records: Sequence[Record]) -> Provenance:
    recipes = [r["recipe"] for r in records if r["updates"]]
    seconds = sorted(r["seconds"] for r in records)
    shortest, longest = f"{seconds[0]:,.1f}", f"{seconds[-1]:,.1f}"
    settings = {
        "test episodes": (_episode(r) for r in records),
        "episodes per split": (str(r["episodes"]) for r in records),
        "training episodes": (_episode(r["train"]) for r in records if "way" in r["train"]),
        "recipe": (_pairs(Recipe().as_dict() | recipe) for recipe in recipes),
    }
    return Provenance(
        devices=_each(r["device"] for r in records),
        versions=_each(_pairs(r["versions"]) for r in records),
        dates=_each(r["date"] for r in records),
        split_seeds=split_seeds(records),
        settings=[(name, "; ".join(_each(texts))) for name, texts in settings.items()],
        wall_time=f"{shortest} to {longest} s" if seconds[0] < seconds[-1] else f"{shortest} s",
    )


def split_seeds(records: Iterable[Record]) -> list[int]:
    return sorted({r["split_seed"] for r in records})


def _each(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(texts))


def _episode(shape: Mapping[str, Any]) -> str:
    return (
        f"{shape['way']}-way {shape['shot']}-shot, {shape['query']} queries, M = {shape['unlabeled']}, "
        f"H = {shape['distractors']}"
    )


def _pairs(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {_shown(value)}" for name, value in values.items())


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return " ".join(map(_shown, value)) or "none"
    return f"{value:,}" if isinstance(value, int) else str(value)
