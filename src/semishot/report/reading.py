"""Result files and folders of them -> their records, choices of recipes, and the run folders beside them."""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from semishot.errors import InputError
from semishot.system.files import real_path
from semishot.training.recipe_choices import Choice, as_choice
from semishot.training.records import Record, as_records
from semishot.training.result_files import read_result_file

NOT_RESULTS = {"benchmark", "sessions"}
"""Fields of files that lie beside results: of the speed, and of who trained a run or a classifier."""


@dataclass(frozen=True)
class Results:
    files: dict[str, list[Record]]
    """Keys are file names, relative to the folder."""
    choices: list[Choice]
    """How recipes were chosen: `choice.json`."""
    runs: list[Path]
    """Run folders, finished or not."""


def read_results(*sources: Path) -> Results:
    """Result files, and all below folders: of published results, of runs, or of `evaluate --json`."""
    found = Results({}, [], [])
    seen: set[Path] = set()
    for source in sources:
        if not source.exists():
            raise InputError(f"no results in {source}: there is no such file or folder")
        for path in [source] if source.is_file() else result_files(source):
            if real_path(path) in seen:  # a file and its folder may both be given
                continue
            seen.add(real_path(path))
            content = read_result_file(path)
            if isinstance(content, dict) and "variants" in content:
                found.choices.append(as_choice(content, path))
            elif not (isinstance(content, dict) and NOT_RESULTS & content.keys()):
                found.files[_name(path, source, found.files)] = as_records(content, path)
        for log in sorted(source.rglob("log.jsonl")):  # none below a file
            if (log.parent / "config.json").exists() and real_path(log.parent) not in seen:
                seen.add(real_path(log.parent))
                found.runs.append(log.parent)
    if not any(found.files.values()):
        given = ", ".join(map(str, sources))
        raise InputError(
            f"no results in {given}: give the folder of `reproduce --runs` or `--publish`, or files of "
            "`evaluate --json`"
        )
    return found


def _name(path: Path, source: Path, taken: Collection[str]) -> str:
    """The file's name relative to the source; its whole path if another source has that name too."""
    name = path.name if source.is_file() else path.relative_to(source).as_posix()
    return path.as_posix() if name in taken else name


def result_files(folder: Path) -> list[Path]:
    """Published files, those of `evaluate --json`, those beside the runs, and each run's `result.json`."""
    published = {*folder.glob("*.json"), *folder.glob("*/*.json")}
    published = {p for p in published if p.name not in ("config.json", "pool.json")}
    return sorted({*published, *folder.glob("*/table5/*.json"), *folder.rglob("result.json")})
