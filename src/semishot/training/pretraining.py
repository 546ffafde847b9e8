"""Encoders that classify the training classes, each in a file of its own: trained once, then read.

Table 5 needs their features, and a fleet may start from them.
"""

import hashlib
import json
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from semishot.network.encoder import ConvEncoder
from semishot.system.files import read_json, write_json
from semishot.system.locks import Lock
from semishot.system.progress import Meter, meter
from semishot.system.tensor_files import is_whole, read_tensors, write_tensors
from semishot.training import loop
from semishot.training.checkpoints import LOCK_FILE
from semishot.training.chunks import images_on
from semishot.training.classification import ClassificationRequest, train_classifiers, untrained
from semishot.training.loop import Event
from semishot.training.origin import TRAINING_FILE, Session, Training, read_sessions, training_of

CLASSIFIERS = "pretrained-classifiers"
"""The folder of the encoders, beside the run folders of a data set."""


def pretrained_encoders(
    request: ClassificationRequest, seeds: Sequence[int], runs: Path
) -> list[ConvEncoder]:
    """One encoder per split seed, read from the files below `runs`, or trained now and saved there."""
    folder = runs / request.pool.name / CLASSIFIERS
    files = {seed: file_of(request, seed, folder) for seed in seeds}
    together = max(1, len(seeds)) if request.device.type == "cuda" else 1
    groups = [seeds[first : first + together] for first in range(0, len(seeds), together)]
    groups = [group for group in groups if _unfinished([files[seed] for seed in group])]
    total = sum(map(len, groups)) * request.recipe.updates * request.images
    images = images_on(request.pool, request.device) if groups else None
    with meter("pre-training", total, "images") as progress:
        for group in groups:
            own = {seed: files[seed] for seed in group}
            observer = MeterObserver(progress, len(group) * request.images)
            for _ in train_together(request, own, observer, images):
                pass
    return [load_encoder(request, files[seed]) for seed in seeds]


def train_together(
    request: ClassificationRequest,
    files: Mapping[int, Path],
    observer: loop.Observer,
    images: Tensor | None,
) -> Iterator[Event]:
    """Train these seeds as one network and save a file for each, unless another process has done so.

    If only some are missing, all are trained again: they share their checkpoints. It yields while the device
    works, and while another process trains these seeds. `images` are as in `train_classifiers`.
    """
    seeds, folder = list(files), checkpoint_folder(list(files.values()))
    if not _unfinished(list(files.values())):  # they may be on a read-only disk
        observer.begin(request.recipe.updates)
        return
    lock = Lock(_lock(folder))
    while not lock.acquire():
        yield Event.WAITING
    with lock:
        if all(map(is_whole, files.values())):
            observer.begin(request.recipe.updates)
        else:
            encoders = yield from train_classifiers(request, seeds, folder, observer, images)
            sessions = read_json(folder / TRAINING_FILE)
            for run, seed in enumerate(seeds):
                own = {k: t[run : run + 1] for k, t in encoders.state_dict().items()}
                if not is_whole(files[seed]):
                    write_json(files[seed].with_suffix(".json"), sessions)
                    write_tensors(files[seed], own, {})
        shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True)
class MeterObserver:
    """Counts the images of a pre-training: see `loop.Observer`."""

    meter: Meter
    batch: int
    """Images of an update, over all runs."""

    def begin(self, step: int) -> None:
        self.meter.skip(step * self.batch)

    def advance(self, updates: int, loss: float) -> None:
        self.meter.advance(updates * self.batch, f"loss {loss:.3f}")

    def line(self, step: int, rate: float, losses: Sequence[float]) -> None:
        """There is no log."""


def training_of_encoder(
    request: ClassificationRequest, seed: int, runs: Path
) -> dict[str, Training]:
    """`training` of a record with the encoder of this seed."""
    folder = runs / request.pool.name / CLASSIFIERS
    return training_of(file_of(request, seed, folder).with_suffix(".json"))


def sessions_of(files: Iterable[Path]) -> list[Session]:
    """The sessions that trained these encoders, each once."""
    held = [session for file in files for session in read_sessions(file.with_suffix(".json"))]
    return [session for place, session in enumerate(held) if session not in held[:place]]


def file_of(request: ClassificationRequest, seed: int, folder: Path) -> Path:
    """The file of a seed, named after all settings of the training."""
    recipe, first = request.recipe, request.first
    settings: dict[str, Any] = {
        "recipe": recipe.changes(),
        "data": request.pool.fingerprint,
        "batch": request.batch,
    }
    settings |= {} if first is None else {"first": asdict(first)}
    digest = hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:8]
    bug = "-scale-bug" if request.scale_bug else ""
    return folder / f"seed{seed}-{recipe.updates}updates{bug}-{digest}.safetensors"


def checkpoint_folder(files: Sequence[Path]) -> Path:
    """The folder for the checkpoints of runs that train together, beside their files."""
    digest = hashlib.sha256(" ".join(file.name for file in files).encode()).hexdigest()[:8]
    return files[0].with_name(f"{len(files)}seeds-{digest}")


def _lock(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}{LOCK_FILE}")


def _unfinished(files: Sequence[Path]) -> bool:
    """Whether there is something to train, or to clean up after a killed process."""
    folder = checkpoint_folder(files)
    leftovers = folder.exists() or _lock(folder).exists()
    return leftovers or not all(map(is_whole, files))


def load_encoder(request: ClassificationRequest, path: Path) -> ConvEncoder:
    """A fleet of one run."""
    encoder = untrained(request.pool, request.recipe, [0])
    encoder.load_state_dict(read_tensors(path)[0])
    return encoder.to(request.device).eval()
