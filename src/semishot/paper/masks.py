"""Mask values on test episodes, and how well they tell distractors from the rest (Figure 7).

Letters: R runs, E episodes, U unlabeled images, N classes, D embedding dimensions.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score, roc_auc_score
from torch import Tensor, nn

from semishot import datasets
from semishot.data.episodes import EpisodeShape, check_enough, sample_episodes
from semishot.data.pool import ImagePool
from semishot.data.splits import ClassImages, all_labeled
from semishot.errors import InputError
from semishot.network.protonet import take_run
from semishot.paper import plan, published, reproduce
from semishot.prototypes import class_prototypes, squared_distances
from semishot.refine import distractor_cluster, masked_soft_kmeans
from semishot.training.evaluation import (
    EPISODES,
    embed_classes,
    episode_accuracies,
    open_model,
    records,
)
from semishot.training.fleets import find_model
from semishot.training.loop import check_fleet

Record = dict[str, Any]
BINS = 50
MASKED = "masked_soft_kmeans"


def figure_masks(
    sources: Sequence[str],
    dataset: str,
    preset: str,
    splits: int,
    updates: int | None,
    shape: EpisodeShape,
    runs: Path,
    root: Path | None,
    device: torch.device,
) -> list[Record]:
    """The records behind Figure 7, of these models or of the fleets behind Table 1."""
    if sources:
        return mask_records(sources, shape, root, device)
    pool = datasets.load(dataset, root)
    folders = fleets_with_distractors(pool, preset, splits, updates, runs, device)
    return mask_records(folders, shape, root, device)


def distractor_scores(
    refiner: nn.Module | None, unlabeled: Tensor, prototypes: Tensor
) -> dict[str, Tensor]:
    """Each (..., U), higher for what looks more like a distractor: (..., U, D), (..., N, D) ->

    `distance`, squared, to the nearest prototype, for any model; `mask`, the negative of the largest
    mask of the image over the classes, for Masked; `cluster`, the distractor cluster's probability.
    """
    d = squared_distances(unlabeled, prototypes)  # (..., U, N)
    scores = {"distance": d.amin(-1)}
    if isinstance(refiner, masked_soft_kmeans.Refiner):
        scores["mask"] = -refiner.mask_of(d).amax(-1)
    if isinstance(refiner, distractor_cluster.Refiner):
        scores["cluster"] = 1 - refiner(unlabeled, prototypes).sum(-1)
    return scores


def mask_records(
    sources: Sequence[str | Path],
    shape: EpisodeShape,
    root: Path | None,
    device: torch.device,
    episodes: int = EPISODES,
) -> list[Record]:
    """One record per run of these fleets: accuracy, how well each score tells distractors, and the
    histogram of mask values."""
    if not shape.distractors or not shape.unlabeled:
        raise InputError(
            "mask values are told apart by distractor or not: --distractors and --unlabeled must be "
            f"at least 1, not {shape.distractors} and {shape.unlabeled}"
        )
    found = []
    for source in sources:
        config, fleet, pool = open_model(find_model(str(source)), root, device)
        images = all_labeled(pool.of_split("test"))
        check_enough(images, shape)
        begun = time.monotonic()
        embeddings = embed_classes(fleet, pool, images)  # (R, I, D)
        seeds = [member.split_seed for member in config.members]
        accuracies = episode_accuracies(fleet, embeddings, images, shape, seeds, "test", episodes)
        seconds = time.monotonic() - begun
        rows = records(config, None, "test", shape, accuracies, seconds, device)
        for run, (member, row) in enumerate(zip(config.members, rows, strict=True)):
            refiner = take_run(fleet, run).double().refiner
            scores = score_episodes(
                refiner, embeddings[run], images, shape, member.split_seed, episodes
            )
            shipped = {"source": source} if str(source).startswith("pretrained:") else {}
            found.append({**row, **shipped, **judged(scores, shape)})
    if not any(record["model"] == MASKED for record in found):
        raise InputError(f"no {MASKED} run in {', '.join(map(str, sources))}: it has the masks")
    return found


@torch.inference_mode()
def score_episodes(
    refiner: nn.Module | None,
    embeddings: Tensor,
    images: ClassImages,
    shape: EpisodeShape,
    seed: int,
    episodes: int,
) -> dict[str, NDArray[np.float64]]:
    """Each score (E, U) of the unlabeled images of one run's test episodes.

    In float64, like the refiner: a saturated sigmoid would tie images that it has told apart.
    """
    place = np.empty(images.order.max() + 1, np.int64)
    place[images.order] = np.arange(len(images.order))
    drawn = sample_episodes(images, shape, seed, "test", 0, episodes)
    support, unlabeled = (
        embeddings[torch.from_numpy(place[rows]).to(embeddings.device)].double()
        for rows in (drawn.support, drawn.unlabeled)
    )  # (E, S, D), (E, U, D)
    labels = torch.eye(shape.way).repeat_interleave(shape.shot, 0).to(support)  # (S, N)
    prototypes = class_prototypes(support, labels)  # (E, N, D)
    scores = distractor_scores(refiner, unlabeled[None], prototypes[None])  # one run: an axis of 1
    return {name: score[0].cpu().numpy() for name, score in scores.items()}


def judged(scores: dict[str, NDArray[np.float64]], shape: EpisodeShape) -> Record:
    """AUROC and average precision over the images of all episodes, AUROC within an episode, and the
    histogram of mask values by distractor or not."""
    episodes, unlabeled = scores["distance"].shape
    distracts = np.arange(unlabeled) >= shape.way * shape.unlabeled  # (U,)
    truth = np.tile(distracts, (episodes, 1))  # (E, U)
    told = {
        name: {
            "auroc": float(roc_auc_score(truth.ravel(), score.ravel())),
            "average_precision": float(average_precision_score(truth.ravel(), score.ravel())),
            "auroc_within_episode": within_episode_auroc(score, distracts),
        }
        for name, score in scores.items()
    }
    found: Record = {"tells_distractors": told}
    if "mask" in scores:
        mask = -scores["mask"]  # (E, U), the largest over the classes
        found["mask_histogram"] = {
            name: np.histogram(mask[:, of], BINS, (0, 1))[0].tolist()
            for name, of in (("distractors", distracts), ("others", ~distracts))
        }
        found["bimodality"] = bimodality(mask.ravel())
    return found


def within_episode_auroc(score: NDArray[np.float64], distracts: NDArray[np.bool_]) -> float:
    """How often a distractor scores above another image of its episode; a tie is half."""
    gap = score[:, distracts, None] - score[:, None, ~distracts]  # (E, H M, N M)
    return float((gap > 0).mean() + (gap == 0).mean() / 2)


def bimodality(values: NDArray[np.float64]) -> float:
    """Sarle's coefficient (skewness^2 + 1) / kurtosis: 5/9 for a uniform distribution, 1 for two
    points, 1/3 for a normal one."""
    standard = (values - values.mean()) / values.std()
    return float(((standard**3).mean() ** 2 + 1) / (standard**4).mean())


def fleets_with_distractors(
    pool: ImagePool,
    preset: str,
    splits: int,
    updates: int | None,
    runs: Path,
    device: torch.device,
) -> list[Path]:
    """The fleets behind Table 1's column with distractors, trained now if they are missing."""
    recipe = published.preset(preset, pool.name).recipe
    recipe = recipe if updates is None else recipe.with_updates(updates)
    jobs = plan.table_jobs(
        published.TABLES["table1"], pool, preset, recipe, splits, runs, models=published.TRAINED
    )
    configs = [job.config for job in jobs if job.config.shape.distractors]
    folders = [plan.run_folder(runs, config) for config in configs]
    for config, folder in zip(configs, folders, strict=True):
        check_fleet(config, pool, folder)
    reproduce.train_all(configs, pool, runs, device, side_by_side=1)
    return folders
