"""Test episodes seen through a trained model, as small pictures for a page. Drawing loads torch."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from semishot import datasets
from semishot.data.thumbnails import data_uri, pool_thumbnail
from semishot.errors import InputError
from semishot.report.pictures import Bytes
from semishot.report.reading import Results
from semishot.system.files import PACKAGE
from semishot.training.config import read_config

if TYPE_CHECKING:
    from semishot.paper.scenes import Scene

MASKED = "masked_soft_kmeans"
MOST_MODELS = 2
"""The most models of each data set."""
MOST_BYTES = 3_000_000
"""The most bytes of all pictures, which keeps a page below 5 MB."""


@dataclass(frozen=True)
class Thumbnail:
    source: str
    """A data URI."""
    about: str
    """The alternative text."""
    mark: str = ""
    tone: str = ""
    share: int | None = None
    """How much of it the refinement uses, in percent."""


@dataclass(frozen=True)
class Episode:
    title: str
    outcome: str
    command: str
    support: Sequence[Sequence[Thumbnail]]
    """By class."""
    unlabeled: Sequence[Thumbnail]
    query: Sequence[Sequence[Thumbnail]]
    """By class."""

    @property
    def bytes(self) -> int:
        images = [*self.unlabeled, *(i for row in (*self.support, *self.query) for i in row)]
        return sum(len(image.source) for image in images)


def draw_episodes(
    found: Results, root: Path | None, episodes: int
) -> tuple[list[Episode], list[str]]:
    """The first test episodes seen through one or two models of each data set, and what is left out."""
    drawn: list[Episode] = []
    left_out: list[str] = []
    models = trained_models(found) or shipped_models()
    for dataset in sorted({r["dataset"] for records in found.files.values() for r in records}):
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
    sizes = np.cumsum([episode.bytes for episode in drawn])
    fitting = int((sizes <= MOST_BYTES).sum())
    if fitting < len(drawn):
        left_out.append(f"{len(drawn) - fitting} more episodes are left out: the page is full.")
    return drawn[:fitting], left_out


def trained_models(found: Results) -> list[tuple[str, str, int]]:
    """Data set, folder and run: one fleet for each data set and preset, with distractors and masks if
    there is one, and of methods of the package: no others are imported."""
    best: dict[tuple[str, str], tuple[tuple[bool, bool, int], str, str, int]] = {}
    for folder in found.runs:
        if not (folder / "model.safetensors").exists():
            continue
        config = read_config(folder / "config.json")
        masked = [run for run, member in enumerate(config.members) if member.model == MASKED]
        inside = not any(":" in member.model for member in config.members)
        worth = inside, bool(masked), config.shape.distractors
        key = config.dataset, config.preset
        if key not in best or worth > best[key][0]:
            best[key] = worth, config.dataset, str(folder), masked[0] if masked else 0
    return [(dataset, folder, run) for _, dataset, folder, run in best.values()]


def shipped_models() -> list[tuple[str, str, int]]:
    """The models that come with the package."""
    held = (PACKAGE / "pretrained").glob("*.safetensors")
    return [(path.stem, f"pretrained:{path.stem}", 0) for path in sorted(held)]


def is_prepared(dataset: str, root: Path | None) -> bool:
    known = dataset in (*datasets.names(), *datasets.own_names(root))
    return known and (datasets.pool_folder(dataset, root) / "pool.json").exists()


def draw(model: str, run: int, number: int, root: Path | None) -> Episode:
    from semishot.paper import scenes
    from semishot.paper.requests import SceneRequest

    scene = scenes.scene_of(SceneRequest(model, episode=number, run=run), root)
    which = f"--model {model} --run {run}" if run else f"--model {model}"
    return as_thumbnails(
        scene, f"episode {number}", f"semishot show episode {which} --episode {number}"
    )


def as_thumbnails(scene: "Scene", name: str, command: str) -> Episode:
    way, per_class = scene.after.shape[0], scene.unlabeled.shape[1]
    support = [
        [
            Thumbnail(data_uri(pool_thumbnail(image)), f"labeled, class {row + 1}")
            for image in images
        ]
        for row, images in enumerate(scene.support)
    ]
    pile = [
        unlabeled_thumbnail(
            scene.unlabeled[row, column], row, way, float(scene.weights[row, column])
        )
        for row, column in np.ndindex(len(scene.unlabeled), per_class)
    ]
    mixed = np.random.default_rng(0).permutation(len(pile))  # as the model sees them
    query = [
        [
            query_thumbnail(image, row, before, after)
            for image, before, after in zip(
                images, scene.before[row], scene.after[row], strict=True
            )
        ]
        for row, images in enumerate(scene.query)
    ]
    truth = np.arange(way)[:, None]
    before, after = (int((predicted == truth).sum()) for predicted in (scene.before, scene.after))
    outcome = (
        f"{before} of {scene.after.size} queries are right before refinement, {after} after it."
    )
    shuffled = [pile[place] for place in mixed]
    return Episode(f"{scene.title}, {name}", outcome, command, support, shuffled, query)


def unlabeled_thumbnail(image: Bytes, row: int, way: int, weight: float) -> Thumbnail:
    share = round(100 * min(max(weight, 0.0), 1.0))
    about = f"distractor, {share} % used" if row >= way else f"of class {row + 1}, {share} % used"
    mark, tone = ("−", "below") if row >= way else ("+", "above")
    return Thumbnail(data_uri(pool_thumbnail(image)), about, mark, tone, share)


def query_thumbnail(image: Bytes, row: int, before: int, after: int) -> Thumbnail:
    """Marked with the predicted class, before and after refinement if they differ."""
    sign, tone = ("✓", "above") if after == row else ("✗", "below")
    predicted = str(after + 1) if before == after else f"{before + 1}→{after + 1}"
    about = f"query of class {row + 1}, predicted {after + 1}, before refinement {before + 1}"
    return Thumbnail(data_uri(pool_thumbnail(image)), about, f"{predicted} {sign}", tone)
