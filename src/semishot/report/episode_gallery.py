"""Which test episodes a report shows, and through which trained models. Drawing loads torch."""

from pathlib import Path

import numpy as np

from semishot import datasets
from semishot.errors import InputError, needing_extra
from semishot.paper.requests import EpisodeRequest
from semishot.report.pictures import Picture, episode_picture
from semishot.report.sections import Results
from semishot.system.files import PACKAGE
from semishot.training.config import read_config

MASKED = "masked_soft_kmeans"
MOST_MODELS = 2
"""Of each data set."""
MOST_BYTES = 3_000_000
"""Of all pictures, which keeps a page below 5 MB."""
Episode = tuple[Picture, str]
"""The picture, and the command that draws it."""


def draw_episodes(
    results: Results, root: Path | None, episodes: int
) -> tuple[list[Episode], list[str]]:
    """The first test episodes seen through one or two models of each data set, and what is left out."""
    drawn: list[Episode] = []
    left_out: list[str] = []
    models = trained_models(results) or shipped_models()
    for dataset in sorted({r["dataset"] for records in results.files.values() for r in records}):
        own = [(model, run) for name, model, run in models if name == dataset]
        if not own:
            left_out.append(f"No episodes of {dataset}: there is no trained model of it here.")
        elif not is_prepared(dataset, root):
            left_out.append(f"No episodes of {dataset}: its images are not prepared here.")
        for model, run in own[:MOST_MODELS] if is_prepared(dataset, root) else []:
            try:
                drawn += [draw(model, run, number, root) for number in range(episodes)]
            except InputError as error:
                left_out.append(f"No episodes of {dataset}: {error}.")
    sizes = np.cumsum([sum(len(tile.source) for tile in picture.tiles) for picture, _ in drawn])
    fitting = int((sizes <= MOST_BYTES).sum())
    if fitting < len(drawn):
        left_out.append(f"{len(drawn) - fitting} more episodes are left out: the page is full.")
    return drawn[:fitting], left_out


def trained_models(results: Results) -> list[tuple[str, str, int]]:
    """Data set, folder and run: one fleet for each data set and preset, with distractors and masks if
    there is one, and of methods of the package: no others are imported."""
    best: dict[tuple[str, str], tuple[tuple[bool, bool, int], str, int]] = {}
    for folder in results.runs:
        if not (folder / "model.safetensors").exists():
            continue
        config = read_config(folder / "config.json")
        masked = [run for run, member in enumerate(config.members) if member.model == MASKED]
        inside = not any(":" in member.model for member in config.members)
        worth = inside, bool(masked), config.shape.distractors
        key = config.dataset, config.preset
        if key not in best or worth > best[key][0]:
            best[key] = worth, str(folder), masked[0] if masked else 0
    return [(dataset, folder, run) for (dataset, _), (_, folder, run) in best.items()]


def shipped_models() -> list[tuple[str, str, int]]:
    """The models that come with the package."""
    models = sorted((PACKAGE / "pretrained").glob("*.safetensors"))
    return [(path.stem, f"pretrained:{path.stem}", 0) for path in models]


def is_prepared(dataset: str, root: Path | None) -> bool:
    known = dataset in (*datasets.names(), *datasets.own_names(root))
    return known and (datasets.pool_folder(dataset, root) / "pool.json").exists()


def draw(model: str, run: int, number: int, root: Path | None) -> Episode:
    with needing_extra("drawing them"):
        from semishot.paper.viewed_episode import view_episode

    view = view_episode(EpisodeRequest(model, episode=number, run=run), root)
    which = f"--model {model} --run {run}" if run else f"--model {model}"
    return episode_picture(view), f"semishot show episode {which} --episode {number}"
