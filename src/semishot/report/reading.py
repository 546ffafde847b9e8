"""A folder of result files -> their records, choices of recipes, and the run folders beside them."""

from dataclasses import dataclass
from pathlib import Path

from semishot.errors import InputError
from semishot.training.records import Choice, Record, as_choice, as_records, read_result_file


@dataclass(frozen=True)
class Results:
    files: dict[str, list[Record]]
    """Keys are file names, relative to the folder."""
    choices: list[Choice]
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
        content = read_result_file(path)
        if isinstance(content, dict) and "variants" in content:
            choices.append(as_choice(content, path))
        elif not (isinstance(content, dict) and "benchmark" in content):
            name = path.name if source.is_file() else path.relative_to(source).as_posix()
            files[name] = as_records(content, path)
    if not any(files.values()):
        raise InputError(
            f"no results in {source}: give the folder of `reproduce --runs` or `--publish`"
        )
    logs = sorted(source.rglob("log.jsonl"))  # none below a file
    runs = [log.parent for log in logs if (log.parent / "config.json").exists()]
    return Results(files, choices, runs)


def result_files(folder: Path) -> list[Path]:
    """Published files, the files that `reproduce` leaves beside the runs, and each run's `result.json`."""
    published = {p for p in folder.glob("*/*.json") if p.name not in ("config.json", "pool.json")}
    return sorted({*published, *folder.glob("*/table5/*.json"), *folder.rglob("result.json")})
