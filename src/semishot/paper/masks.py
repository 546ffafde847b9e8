"""Mask values on test episodes, and how well they separate distractors from other images (Figure 7).

Letters: R runs, E episodes, U unlabeled images, N classes, D embedding dimensions.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score, roc_auc_score
from torch import Tensor, nn

from semishot import datasets
from semishot.data.episodes import EpisodeShape, check_enough
from semishot.data.splits import all_labeled
from semishot.errors import InputError
from semishot.network.protonet import support_labels, take_run
from semishot.paper import plan, published
from semishot.paper.reproduce import Site, check_fleets, train_planned
from semishot.paper.requests import MasksRequest, TableRequest
from semishot.prototypes import class_prototypes, squared_distances
from semishot.refine import distractor_cluster, masked_soft_kmeans
from semishot.system.devices import device_name, pick_device
from semishot.training import evaluation
from semishot.training.examples import EpisodeStreams, streams_of
from semishot.training.fleets import find_model
from semishot.training.records import MaskRecord, Measurement, accuracy_records
from semishot.training.requests import EPISODES, Where

BINS = 50
MASKED = "masked_soft_kmeans"


def figure_masks(request: MasksRequest, where: Where) -> list[MaskRecord]:
    """The records of Figure 7, for the requested models or for the fleets of Table 1."""
    device = pick_device(where.device)
    sources: Sequence[str | Path] = request.model
    if not sources:
        pool = datasets.load(request.dataset, where.data_root)
        sources = fleets_with_distractors(request, Site(pool, where.runs, device))
    return mask_records(sources, request.shape, where.data_root, device)


def distractor_scores(
    refiner: nn.Module | None, unlabeled: Tensor, prototypes: Tensor
) -> dict[str, Tensor]:
    """Each (..., U), higher for images more like distractors: (..., U, D), (..., N, D) ->

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
) -> list[MaskRecord]:
    """One record per run of these fleets: accuracy, how well each score separates distractors, and the
    histogram of mask values."""
    if not shape.distractors or not shape.unlabeled:
        raise InputError(
            "mask values are told apart by distractor or not: --distractors and --unlabeled must be "
            f"at least 1, not {shape.distractors} and {shape.unlabeled}"
        )
    records = []
    for source in sources:
        path = find_model(str(source))
        shipped = {"source": str(source)} if str(source).startswith("pretrained:") else {}
        config, fleet, pool = evaluation.open_fleet(path, root, device)
        images = all_labeled(pool.of_split("test"))
        check_enough(images, shape)
        begun = time.monotonic()
        embeddings = evaluation.embed_classes(fleet, pool, images)  # (R, I, D)
        seeds = [member.split_seed for member in config.members]
        streams = streams_of(images, seeds, shape)
        accuracies = evaluation.episode_accuracies(fleet, embeddings, streams, episodes)
        seconds = time.monotonic() - begun
        made_from = evaluation.data_and_training(path, pool)
        measurement = Measurement(shape, "test", seconds, device_name(device), *made_from)
        rows = accuracy_records(config, None, measurement, accuracies)
        for run, (member, row) in enumerate(zip(config.members, rows, strict=True)):
            refiner = take_run(fleet, run).double().refiner
            own = streams_of(images, [member.split_seed], shape)
            scores = score_episodes(refiner, embeddings[run], own, episodes)
            more = {"kind": "masks", **shipped, **separation(scores, shape)}
            records.append(cast(MaskRecord, {**row, **more}))
    if not any(record["model"] == MASKED for record in records):
        raise InputError(f"no {MASKED} run in {', '.join(map(str, sources))}: it has the masks")
    return records


@torch.inference_mode()
def score_episodes(
    refiner: nn.Module | None, embeddings: Tensor, stream: EpisodeStreams, episodes: int
) -> dict[str, NDArray[np.float64]]:
    """Each score (E, U) of the unlabeled images of one run's test episodes, from embeddings (I, D).

    In float64, like the refiner: a saturated sigmoid would tie images that differ.
    """
    shape = stream.shape
    rows = torch.from_numpy(stream.draw_rows(0, episodes)[0]).to(embeddings.device)  # (E, B)
    of_support, of_unlabeled, _ = rows.split(list(shape.sizes), -1)
    support, unlabeled = embeddings[of_support].double(), embeddings[of_unlabeled].double()
    prototypes = class_prototypes(support, support_labels(shape, support))  # (E, N, D)
    scores = distractor_scores(refiner, unlabeled[None], prototypes[None])  # one run: an axis of 1
    return {name: score[0].cpu().numpy() for name, score in scores.items()}


def separation(scores: dict[str, NDArray[np.float64]], shape: EpisodeShape) -> dict[str, Any]:
    """AUROC and average precision over the images of all episodes, AUROC within an episode, and the
    histogram of mask values by distractor or not."""
    episodes, unlabeled = scores["distance"].shape
    distracts = np.arange(unlabeled) >= shape.way * shape.unlabeled  # (U,)
    truth = np.tile(distracts, episodes)  # (E * U,)
    separations = {
        name: {
            "auroc": float(roc_auc_score(truth, score.ravel())),
            "average_precision": float(average_precision_score(truth, score.ravel())),
            "auroc_within_episode": float(
                np.mean([roc_auc_score(distracts, own) for own in score])
            ),
        }
        for name, score in scores.items()
    }
    judged: dict[str, Any] = {"tells_distractors": separations}
    if "mask" in scores:
        mask = -scores["mask"]  # (E, U), the largest over the classes
        judged["mask_histogram"] = {
            name: np.histogram(mask[:, of], BINS, (0, 1))[0].tolist()
            for name, of in (("distractors", distracts), ("others", ~distracts))
        }
        judged["bimodality"] = bimodality(mask.ravel())
    return judged


def bimodality(values: NDArray[np.float64]) -> float:
    """Sarle's coefficient (skewness^2 + 1) / kurtosis: 5/9 for a uniform distribution, 1 for two
    points, 1/3 for a normal one."""
    standard = (values - values.mean()) / values.std()
    return float(((standard**3).mean() ** 2 + 1) / (standard**4).mean())


def fleets_with_distractors(request: MasksRequest, site: Site) -> list[Path]:
    """The fleets of Table 1's column with distractors, trained now if they are missing."""
    wanted = TableRequest(
        *(None, request.preset, request.splits), models=published.TRAINED, updates=request.updates
    )
    fleets = plan.table_fleets(published.TABLES["table1"], wanted, site.pool, site.runs)
    fleets = [each for each in fleets if each.config.shape.distractors]
    check_fleets(fleets, site)
    train_planned(fleets, site)
    return [site.folder(each.config) for each in fleets]
