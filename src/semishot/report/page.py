"""Result files -> one self-contained HTML page: tables, charts, episodes, how to run them again."""

import sys
from collections.abc import Sequence
from operator import itemgetter
from pathlib import Path

from semishot import datasets
from semishot.errors import InputError, check_number, needing_extra
from semishot.paper.requests import EpisodeRequest
from semishot.report import charts, render
from semishot.report.paper_tables import overview
from semishot.report.pictures import PICTURE_STYLE, Picture, episode_picture
from semishot.report.provenance import day_of
from semishot.report.render import CHART_STYLE, FOLDER, PAGE_STYLE
from semishot.report.sections import Results, make_sections, read_results
from semishot.system.files import PACKAGE, reading, write_whole
from semishot.training.config import read_config
from semishot.training.run_folder import MODEL_FILE

MASKED = "masked_soft_kmeans"
MOST_EPISODES, MOST_CURVES, MOST_MODELS = 20, 24, 2
"""Episodes of a model, fleets whose learning curves are shown, and models of each data set: a page stays
below 5 MB."""
Model = tuple[str, str, int]
"""Its data set, its source and which run of it."""
Episode = tuple[Picture, str]
"""The picture, and the command that draws it."""


def write_report(
    source: Path | Sequence[Path], out: Path, root: Path | None = None, episodes: int = 2
) -> None:
    """Write the page from result files, and from those below folders.

    Episodes are drawn if there is a model and its data are prepared; with 0 of them, torch is not loaded.
    """
    check_number("--episodes", episodes, 0, MOST_EPISODES)
    if out.is_dir():
        raise InputError(f"cannot write {out}: it is a folder")
    sources = [source] if isinstance(source, Path) else source
    write_whole(out, as_html(read_results(*sources), root, episodes))


def report_on_runs(runs: Path, root: Path | None = None) -> None:
    """Write the page beside the runs and print its path; damage in an old run is not an error."""
    out = runs / "report.html"
    try:
        write_report(runs, out, root)
        print(f"report: {out}", file=sys.stderr)
    except (InputError, OSError) as error:
        print(f"no report: {error}", file=sys.stderr)


def as_html(results: Results, root: Path | None, episodes: int) -> str:
    drawn, left_out = draw_episodes(results, root, episodes) if episodes else ([], [])
    records = [r for own in results.files.values() for r in own]
    names = ", ".join(sorted({r["dataset"] for r in records}))
    devices = " and ".join(sorted({r["device"] for r in records}))
    newest = day_of(max(r["date"] for r in records))
    with reading(f"one of the files {', '.join(list(results.files)[:3])}"):
        made = [section for _, section in make_sections(results)]
        curves = [charts.learning_curves(folder) for folder in results.runs[:MOST_CURVES]]
        return render.render(
            FOLDER / "page.html",
            [CHART_STYLE, PICTURE_STYLE, PAGE_STYLE],
            lead=f"{len(records):,} records of {names}, measured on {devices}; the newest of {newest}.",
            overview=overview(made),
            sections=made,
            curves=[curve for curve in curves if curve],
            curves_left_out=max(0, len(results.runs) - MOST_CURVES),
            episodes=drawn,
            left_out=left_out,
            render=render,
            charts=charts,
        )


# Episodes


def draw_episodes(
    results: Results, root: Path | None, episodes: int
) -> tuple[list[Episode], list[str]]:
    """The first test episodes seen through one or two models of each data set, and what is left out."""
    drawn, left_out = list[Episode](), list[str]()
    shipped = sorted(path.stem for path in (PACKAGE / "pretrained").glob("*.safetensors"))
    models = trained_models(results) or [(name, f"pretrained:{name}", 0) for name in shipped]
    prepared = (*datasets.names(), *datasets.own_names(root))
    for dataset in sorted({r["dataset"] for records in results.files.values() for r in records}):
        own = [model for model in models if model[0] == dataset]
        try:
            if not own:
                raise InputError("there is no trained model of it here")
            folder = datasets.pool_folder(dataset, root) if dataset in prepared else None
            if folder is None or not (folder / "pool.json").exists():
                raise InputError("its images are not prepared here")
            for model in own[:MOST_MODELS]:
                drawn += [draw(model, number, root) for number in range(episodes)]
        except InputError as error:
            left_out.append(f"No episodes of {dataset}: {error}.")
    return drawn, left_out


def trained_models(results: Results) -> list[Model]:
    """One fleet for each data set and preset, with distractors and masks if there is one, and of methods of
    the package: no others are imported."""
    best: dict[tuple[str, str], tuple[tuple[bool, bool, int], Model]] = {}
    for folder in results.runs:
        if (folder / MODEL_FILE).exists():
            config = read_config(folder / "config.json")
            methods = [member.model for member in config.members]
            masked, inside = MASKED in methods, not any(":" in method for method in methods)
            model = config.dataset, str(folder), methods.index(MASKED) if masked else 0
            own = (inside, masked, config.shape.distractors), model
            key = config.dataset, config.preset
            best[key] = max(best.get(key, own), own, key=itemgetter(0))
    return [model for _, model in best.values()]


def draw(model: Model, number: int, root: Path | None) -> Episode:
    with needing_extra("drawing them"):
        from semishot.paper.viewed_episode import view_episode

    _, source, run = model
    view = view_episode(EpisodeRequest(source, episode=number, run=run), root)
    which = f"--model {source} --run {run}" if run else f"--model {source}"
    return episode_picture(view), f"semishot show episode {which} --episode {number}"
