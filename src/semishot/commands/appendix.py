"""`semishot reproduce table5|figure-masks` and `semishot show`: parse, call one function, print."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from semishot.data.episodes import EpisodeShape
from semishot.paper.requests import MasksRequest, SceneRequest, Table5Request
from semishot.training.requests import Where

RUNS = Path("runs")
Json = Annotated[bool, tyro.conf.arg(name="json")]
MASK_SHAPE = EpisodeShape(query=14, distractors=5)
EPISODE_PICTURE = EpisodeShape(query=3, unlabeled=3, distractors=5)
REFINEMENT_PICTURE = EpisodeShape(way=3, query=5, unlabeled=5, distractors=3)


def table5(
    dataset: str = "omniglot",
    features: tuple[Literal["pixels", "random", "pretrained"], ...] = (
        "pixels",
        "random",
        "pretrained",
    ),
    with_scale_bug: bool = False,
    splits: int = 10,
    updates: int | None = None,
    runs: Path = RUNS,
    publish: Path | None = None,
    data_root: Path | None = None,
    device: str = "auto",
    as_json: Json = False,
) -> None:
    """1-NN and logistic regression on pixels and on Conv-4 features, beside the paper's Table 5.

    Args:
        dataset: A prepared data set; `semishot data list` shows them.
        features: What the classifiers see; pre-training is the only part that takes long.
        with_scale_bug: Also pre-train on pixels from 0 to 255, as the authors' code does.
        splits: Seeds 0, 1, ... of the labeled split, the weights and the test episodes.
        updates: Of the pre-training, instead of 4,000; the schedule is stretched with them.
        runs: Where pre-trained classifiers and records are kept and found again.
        publish: Write the records to this folder too, for `semishot results`.
        data_root: Where prepared data are; else $SEMISHOT_DATA, else the cache folder.
        device: auto, cpu, cuda or cuda:N.
        as_json: Print the cells as JSON.
    """
    from semishot.paper import table5
    from semishot.report import baseline_tables, page, rendering
    from semishot.training.records import publish as publish_records

    request = Table5Request(dataset, features, with_scale_bug, splits, updates)
    records = table5.table5(request, Where(runs, data_root, device))
    print(
        baseline_tables.table5_as_json(records)
        if as_json
        else rendering.as_text(baseline_tables.table5_section(records))
    )
    if publish is not None:
        suffix = "" if updates is None else f"-{updates}"
        publish_records(records, publish / dataset / f"table5{suffix}.json")
    page.report_on_runs(runs, data_root)


def figure_masks(
    model: tuple[str, ...] = (),
    dataset: str = "omniglot",
    preset: str = "ren2018",
    splits: int = 10,
    updates: int | None = None,
    shape: Annotated[EpisodeShape, tyro.conf.arg(name="")] = MASK_SHAPE,
    out: Path = Path("figure-masks.png"),
    runs: Path = RUNS,
    publish: Path | None = None,
    data_root: Path | None = None,
    device: str = "auto",
    as_json: Json = False,
) -> None:
    """Draw the mask values of distractors and others, and say what tells them apart (Figure 7).

    Args:
        model: Trained run folders, or pretrained:omniglot; by default the fleets behind Table 1's
            column with distractors, trained now if they are missing.
        dataset: The data set of those fleets.
        preset: Their preset.
        splits: Their labeled/unlabeled splits; the ± is their standard error.
        updates: Their training updates instead of the preset's.
        shape: The test episode.
        out: The figure: .png, .pdf or .svg.
        runs: Where runs are kept, resumed and found again.
        publish: Write the records to this folder too, for `semishot results`.
        data_root: Where prepared data are; else $SEMISHOT_DATA, else the cache folder.
        device: auto, cpu, cuda or cuda:N.
        as_json: Print one record per run.
    """
    from semishot.paper import masks
    from semishot.report import mask_tables, page, plots, rendering
    from semishot.training.records import publish as publish_records

    request = MasksRequest(model, dataset, preset, splits, updates, shape)
    records = masks.figure_masks(request, Where(runs, data_root, device))
    plots.draw_masks(records, out)
    words = rendering.as_text(mask_tables.masks_section(records))
    print(json.dumps(records, indent=1) if as_json else words)
    if publish is not None:
        publish_records(records, publish / records[0]["dataset"] / "figure-masks.json")
    publish_records(records, runs / records[0]["dataset"] / "figure-masks.json")  # for the report
    page.report_on_runs(runs, data_root)


def episode(
    model: str = "pretrained:omniglot",
    dataset: str | None = None,
    shape: Annotated[EpisodeShape, tyro.conf.arg(name="")] = EPISODE_PICTURE,
    seed: int = 0,
    episode: int = 0,
    run: int = 0,
    out: Path = Path("episode.png"),
    data_root: Path | None = None,
) -> None:
    """Draw a test episode: support, unlabeled with the distractors marked, query with predictions.

    Args:
        model: A trained run folder, pretrained:omniglot, or `pixels` for no encoder at all.
        dataset: With `pixels`, whose images to show.
        shape: The episode.
        seed: Which stream of test episodes.
        episode: Which episode of it, from 0.
        run: Which run of the fleet, from 0.
        out: The picture: .png, .pdf or .svg.
        data_root: Where prepared data are; else $SEMISHOT_DATA, else the cache folder.
    """
    from semishot.paper import scenes
    from semishot.report import pictures

    request = SceneRequest(model, dataset, shape, seed, episode, run)
    pictures.draw_episode(scenes.scene_of(request, data_root), out)
    print(out)


def refinement(
    model: str = "pretrained:omniglot",
    shape: Annotated[EpisodeShape, tyro.conf.arg(name="")] = REFINEMENT_PICTURE,
    seed: int = 0,
    episode: int = 0,
    run: int = 0,
    out: Path = Path("refinement.png"),
    data_root: Path | None = None,
) -> None:
    """Draw the embeddings of a test episode in two dimensions, and where refinement moves prototypes.

    Args:
        model: A trained run folder, or pretrained:omniglot.
        shape: The episode.
        seed: Which stream of test episodes.
        episode: Which episode of it, from 0.
        run: Which run of the fleet, from 0.
        out: The picture: .png, .pdf or .svg.
        data_root: Where prepared data are; else $SEMISHOT_DATA, else the cache folder.
    """
    from semishot.paper import scenes
    from semishot.report import pictures

    request = SceneRequest(model, None, shape, seed, episode, run)
    pictures.draw_refinement(scenes.scene_of(request, data_root), out)
    print(out)


REPRODUCE_COMMANDS: dict[str, Callable[..., Any]] = {"table5": table5, "figure-masks": figure_masks}
"""What has arguments of its own; the rest is `semishot reproduce`."""
SHOW_COMMANDS: dict[str, Callable[..., Any]] = {"episode": episode, "refinement": refinement}
