"""Records -> how, where and when they were measured, on which images, and how to prepare these."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from itertools import chain
from typing import Any

from semishot.data.settings import AUTHORS, preparation_flags
from semishot.paper import presets
from semishot.report.charts import Chart
from semishot.report.tables import Grid, GridCell, Section
from semishot.training.config import Recipe
from semishot.training.records import Record

DATA_ROOT = "FOLDER"
"""What commands call a data root of its own."""
SOURCE_FLAGS = {"omniglot": "--download", "mini-imagenet": "--source IMAGES"}


def section_of(
    records: Sequence[Record],
    title: str,
    grids: list[Grid],
    commands: Sequence[str],
    note: str = "",
    finding: str = "",
    charts: Sequence[Chart] = (),
    summary: Sequence[GridCell] = (),
) -> Section:
    """The section of these records; its commands begin with the one that prepares images of another kind."""
    dataset, prepared = records[0]["dataset"], records[0].get("preparation", "")
    title += f", images prepared `{prepared}`" if prepared else ""
    if dataset in AUTHORS and prepared:
        flags = shlex.join(preparation_flags(dataset, prepared))
        prepare = f"semishot data prepare {dataset} {SOURCE_FLAGS[dataset]} {flags}"
        commands = [f"{each} --data-root {DATA_ROOT}" for each in (prepare, *commands)]
    facts = provenance(records)
    return Section(title, grids, facts, [*commands], note, finding, charts, [*summary])


def again(name: str, request: Any) -> str:
    """The command of a request for `semishot reproduce`, without what is its default."""
    words = ["semishot", "reproduce", name, "--dataset", request.dataset]
    for each in fields(request):
        value = getattr(request, each.name)
        if each.name != "dataset" and value not in (each.default, {}):
            values = chain(*value.items()) if isinstance(value, Mapping) else value
            values = [values] if isinstance(values, str | int) else values
            words += [f"--{each.name.replace('_', '-')}"]
            words += [] if value is True else map(str, values)
    return shlex.join(words)


def unusual_updates(record: Record) -> int | None:
    """The number of updates, if it is not that of the record's preset."""
    preset, dataset, updates = record["preset"], record["dataset"], record["updates"]
    known = presets.exists(preset, dataset)
    return None if known and presets.preset(preset, dataset).recipe.updates == updates else updates


def provenance(records: Sequence[Record]) -> dict[str, str]:
    """By name, with every value that occurs."""
    trained = [r["training"]["seconds"] for r in records if "training" in r]
    recipes = (r["recipe"] for r in records if r["updates"])
    facts: dict[str, Iterable[str]] = {
        "split seeds": [f"Split seeds {_range(split_seeds(records), '{}')}"],
        "test episodes": (episode_of(r) for r in records),
        "episodes per split": (str(r["episodes"]) for r in records),
        "training episodes": (episode_of(r["train"]) for r in records if "way" in r["train"]),
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


def differences(records: Sequence[Record]) -> list[str]:
    """What should be the same for all records of a table and is not, with its values."""
    values: dict[str, list[str]] = {}
    for r in records:
        state = {"code": r["code"], "data": r.get("data", "not named"), "device": r["device"]}
        if "training" in r:
            state["code of the training"] = r["training"]["code"]
            state["device of the training"] = r["training"]["device"]
        for name, value in {**state, **r["versions"]}.items():
            values.setdefault(name, []).append(value)
    each = {name: _each(own) for name, own in values.items()}
    return [f"{name} {' and '.join(own)}" for name, own in each.items() if len(own) > 1]


def code_and_data(records: Sequence[Record]) -> str:
    """As in `code 0123456789ab (commit fedcba987654), data 0011223344556677`, with every value."""
    commits = (f" (commit {r['commit']})" if "commit" in r else "" for r in records)
    codes = _each(r["code"] + commit for r, commit in zip(records, commits, strict=True))
    both = {"code": codes, "data": _each(r["data"] for r in records if "data" in r)}
    return ", ".join(f"{name} {' and '.join(each)}" for name, each in both.items() if each)


def episode_of(shape: Mapping[str, Any]) -> str:
    """The shape of an episode, of a record or as a record has that of the training."""
    return (
        f"{shape['way']}-way {shape['shot']}-shot, {shape['query']} queries, M = {shape['unlabeled']}, "
        f"H = {shape['distractors']}"
    )


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
    return " to ".join(_each([form.format(min(values)), form.format(max(values))]))


def _each(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(texts))


# Which images


def about_images(records: Sequence[Record]) -> str:
    """Whether these images are those of the authors' code, where there are several kinds."""
    theirs = AUTHORS.get(records[0]["dataset"])
    if theirs is None:
        return ""
    if records[0].get("preparation", "") == theirs:
        return "Images as in the authors' code."
    return f"Other images than the authors' (`{theirs}`)."


def image_order(record: Record) -> tuple[int, str]:
    """The authors' images first, then the usual ones, then any others."""
    name, theirs = record.get("preparation", ""), AUTHORS.get(record["dataset"])
    return 0 if theirs and name == theirs else 2 if name else 1, name
