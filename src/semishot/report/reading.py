"""A folder of result files -> records that have what a report needs, and the run folders beside them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from semishot.errors import InputError
from semishot.report.tables import Record
from semishot.system.files import read_json
from semishot.system.json_fields import fits

FIELDS: dict[str, type] = {
    **dict.fromkeys(("dataset", "preset", "model", "split", "device", "date"), str),
    **dict.fromkeys(("way", "shot", "query", "unlabeled", "distractors"), int),
    **dict.fromkeys(("split_seed", "episodes", "updates"), int),
    **dict.fromkeys(("accuracy", "accuracy_ci95", "seconds"), float),
    **dict.fromkeys(("options", "recipe", "train", "versions"), dict),
}


@dataclass(frozen=True)
class Results:
    files: dict[str, list[Record]]
    """By the name of the file, below the folder."""
    choices: list[dict[str, Any]]
    """How recipes were chosen: `choice.json`."""
    runs: list[Path]
    """Run folders, finished or not."""


def read_results(source: Path) -> Results:
    """One result file, or all below a folder of published results or of runs."""
    if not source.exists():
        raise InputError(f"no results in {source}: there is no such file or folder")
    files: dict[str, list[Record]] = {}
    choices = []
    paths = [source] if source.is_file() else result_files(source)
    for path in paths:
        content = _parsed(path)
        if isinstance(content, dict) and "variants" in content:
            choices.append(content)
        elif not (isinstance(content, dict) and "benchmark" in content):
            name = path.name if source.is_file() else path.relative_to(source).as_posix()
            files[name] = _checked(path, content)
    if not any(files.values()):
        raise InputError(
            f"no results in {source}: give the folder of `reproduce --runs` or `--publish`"
        )
    logs = sorted(source.rglob("log.jsonl"))  # none below a file
    runs = [log.parent for log in logs if (log.parent / "config.json").exists()]
    return Results(files, choices, runs)


def result_files(folder: Path) -> list[Path]:
    """Published files, what `reproduce` leaves at the side, and the `result.json` of each run."""
    published = {p for p in folder.glob("*/*.json") if p.name not in ("config.json", "pool.json")}
    return sorted({*published, *folder.glob("*/table5/*.json"), *folder.rglob("result.json")})


def _parsed(path: Path) -> Any:
    try:
        return read_json(path)
    except (OSError, InputError) as error:
        raise InputError(f"cannot read result file {path}: {error}") from error


def _checked(path: Path, content: Any) -> list[Record]:
    """Records whose fields are what they should be; numbers are finite."""
    if not isinstance(content, list) or not all(isinstance(record, dict) for record in content):
        raise InputError(f"{path} is no result file: it holds no list of records")
    for place, record in enumerate(content):
        for name, kind in FIELDS.items():
            value = record.get(name)
            if not fits(value, kind):
                raise InputError(
                    f"{path} is no result file of this version: {name!r} of record {place} should be "
                    f"a {kind.__name__}, not {value!r:.40}"
                )
    return content
