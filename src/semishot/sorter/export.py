"""A saved model -> one ONNX file: pixels or features in; class, probabilities, scores of strangers out.

Letters: B images, H x W pixels, C channels, D features, N classes.
"""

import json
import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from semishot import __version__, prototypes
from semishot.errors import InputError
from semishot.estimator import constants as const
from semishot.estimator.classifier import PrototypeClassifier
from semishot.estimator.labels import UNLABELED
from semishot.estimator.models import AnyModel, GraphModel
from semishot.estimator.spaces import GaussianSpace
from semishot.estimator.strangers import stranger_probability
from semishot.sorter.encoders.image_encoder import ImageEncoder
from semishot.sorter.encoders.onnx_files import imported
from semishot.sorter.encoders.onnx_module import OnnxModule
from semishot.sorter.export_check import OUTPUTS, TOLERANCE, compare, feature_trials, image_trials
from semishot.sorter.onnx_merge import FOUND, PIXELS, merged, opset_for
from semishot.sorter.out_folder import CLASSIFIER
from semishot.sorter.predict import read_saved_model, saved_folder
from semishot.system.files import write_whole

STEPS = 4096
"""Steps of the tables of what scores mean, interpolated linearly."""


@dataclass(frozen=True)
class Exported:
    path: Path
    classes: int
    takes: str
    megabytes: float
    difference: float
    """The largest difference of a probability or score between onnxruntime and torch."""

    def __str__(self) -> str:
        return (
            f"{self.path}: {self.classes} classes, takes {self.takes}, {self.megabytes:.1f} MB; "
            f"onnxruntime and torch differ by {self.difference:.1e} at most"
        )


class Head(nn.Module):
    """Features (B, D) -> label, probabilities (B, N), distractor score and stranger probability (B,)."""

    table: Tensor

    def __init__(self, classifier: PrototypeClassifier) -> None:
        super().__init__()
        self.model = ModelInTorch(classifier.model_)
        members, strangers = classifier.members_, classifier.strangers_
        self.mean, self.spread, table = 0.0, 1.0, np.full((STEPS + 1, 2), np.nan)
        self.cutoff = -float("inf")
        if members is not None:
            self.mean, self.spread = members.mean, members.spread
            u = np.linspace(-1, 1, STEPS + 1)
            with np.errstate(divide="ignore"):
                z = u / (1 - np.abs(u))  # -1 and 1 map to the infinities
            scores = np.nan_to_num(members.mean + members.spread * z, posinf=1e30, neginf=-1e30)
            table[:, 0] = members.share_above(scores)
            if strangers is not None:
                table[:, 1] = stranger_probability(scores, members, strangers)
            if classifier.reject is not None:
                self.cutoff = members.cutoff(classifier.reject)
        self.register_buffer("table", torch.from_numpy(table).float())

    def forward(self, features: Tensor) -> tuple[Tensor, ...]:
        logits, scores = self.model(features.float())  # (B, N), (B,)
        label = torch.where(scores < self.cutoff, UNLABELED, logits.argmax(-1))
        shares, stranger = self.looked_up(scores).unbind(-1)
        return label, logits.softmax(-1), shares, stranger

    def looked_up(self, scores: Tensor) -> Tensor:
        """(B,) -> (B, 2) by a table, even in u = z / (1 + |z|) from -1 to 1."""
        z = (scores - self.mean) / self.spread
        place = (z / (1 + z.abs()) + 1) * (STEPS / 2)
        below = place.floor().clamp(0, STEPS - 1)
        low, high = self.table[below.long()], self.table[below.long() + 1]
        return low + (place - below).unsqueeze(-1) * (high - low)


class ModelInTorch:
    """What a model of the estimator computes, in torch and float32."""

    def __init__(self, model: AnyModel) -> None:
        self.model, self.space = model, model.space
        parts = {**vars(model), **vars(model.space)}
        self.tensors = {
            name: torch.from_numpy(part).float()
            for name, part in parts.items()
            if isinstance(part, np.ndarray)
        }

    def __call__(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """(B, D) -> logits (B, N) and scores (B,)."""
        x, model, tensors = self.placed(features), self.model, self.tensors
        if not isinstance(model, GraphModel):
            logits = -prototypes.squared_distances(x, tensors["prototypes"])
            return logits, logits.amax(-1)
        cosines, rows = (x @ tensors["rows"].mT).topk(min(const.NEIGHBOURS, len(model.rows)))
        weights = cosines.clamp_min(0) ** const.EDGE_POWER  # (B, k)
        total = weights.sum(-1, keepdim=True).clamp_min(const.TINY)  # (B, 1)
        z = (weights.unsqueeze(-1) * tensors["passed"][rows]).sum(-2) * (2 / total).sqrt()
        arrived, named = z[:, :-1].clamp_min(const.TINY), z[:, -1:]
        raw = arrived.log() + x @ tensors["scoring"].mT
        raw = raw - (const.NAMED_WEIGHT * named / arrived).log1p()  # (B, N)
        around = (weights * tensors["best"][rows]).sum(-1) / total[:, 0]
        scores = (1 - model.share) * raw.amax(-1) + model.share * around
        logits = model.graph_weight * arrived.log() + model.pull * (x @ tensors["prototypes"].mT)
        own, same = tensors["answers"][rows[:, 0]], cosines[:, :1] > const.SAME
        return torch.where(same, own[:, :-1], logits), torch.where(same[:, 0], own[:, -1], scores)

    def placed(self, features: Tensor) -> Tensor:
        """(B, D) -> where rows are compared."""
        space, tensors = self.space, self.tensors
        if isinstance(space, GaussianSpace):
            scaled = (features - tensors["center"]) / space.width
            kernel = (-prototypes.squared_distances(scaled, tensors["pivots"]) / 2).exp()
            along = kernel @ tensors["mix"].mT
            rest = (1 - along.square().sum(-1, keepdim=True)).clamp_min(0).sqrt()
            return torch.cat([along, rest], -1)
        if space.normalization == "centered":
            features = nn.functional.normalize(features, dim=-1) - tensors["center"]
        if space.normalization != "none":
            features = nn.functional.normalize(features, dim=-1)
        return features / space.length


class EncoderAndHead(nn.Module):
    """uint8 images (B, H, W, C) -> what `Head` returns for their features."""

    def __init__(self, encoder: nn.Module, head: Head) -> None:
        super().__init__()
        self.encoder, self.head = encoder, head

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        answer: tuple[Tensor, ...] = self.head(self.encoder(images))
        return answer


def export(model: Path, out: Path) -> Exported:
    """Write `out` from a folder that `semishot classify` left, or from a saved PrototypeClassifier."""
    if not model.is_dir():
        return export_classifier(PrototypeClassifier.load(model), None, out)
    _, encoder = read_saved_model(model)
    classifier = PrototypeClassifier.load(saved_folder(model) / CLASSIFIER)
    return export_classifier(classifier, encoder, out)


def export_classifier(
    classifier: PrototypeClassifier, encoder: ImageEncoder | None, out: Path
) -> Exported:
    """Write `out`, which takes images, or features if there is no encoder.

    The graph is compared with torch by onnxruntime before the file is written.
    """
    for name in ("onnx", "onnxscript", "onnxruntime"):
        imported(name)
    if out.suffix != ".onnx":
        raise InputError(f"an ONNX file ends in .onnx, not {out.name!r}")
    data, difference = checked_graph(classifier, encoder)
    imported("onnx").checker.check_model(data)
    write_whole(out, data)
    takes = f"features ({classifier.n_features_in_})"
    if encoder is not None:
        takes = f"uint8 images ({encoder.height} x {encoder.width} x {encoder.channels})"
    return Exported(out, len(classifier.classes_), takes, len(data) / 1e6, difference)


def checked_graph(
    classifier: PrototypeClassifier, encoder: ImageEncoder | None
) -> tuple[bytes, float]:
    """The graph, and its largest difference from torch. The head is also compared alone: the test images
    are rarely near a class."""
    head, rows = Head(classifier), feature_trials(classifier)
    data = as_onnx(head, "features", rows, about(classifier, None))
    difference = compare(data, "features", rows, classifier, lambda x: x)
    if encoder is None:
        return data, difference
    module, images = encoder.module, image_trials(encoder)

    @torch.inference_mode()
    def embed(pixels: NDArray[Any]) -> NDArray[Any]:
        features: NDArray[Any] = module(torch.from_numpy(pixels)).numpy()
        return features

    facts = about(classifier, encoder)
    if isinstance(module, OnnxModule):
        data = with_onnx_encoder(module, head, images, facts)
    else:
        data = as_onnx(EncoderAndHead(module, head), "images", images, facts)
    return data, max(difference, compare(data, "images", images, classifier, embed))


def with_onnx_encoder(
    module: OnnxModule, head: Head, images: NDArray[Any], metadata: dict[str, str]
) -> bytes:
    """The user's graph between two of torch's: what prepares pixels, and pooling with the head."""
    opset = opset_for(module)
    pixels = module.scaling(torch.from_numpy(images)).contiguous().numpy()
    before = as_onnx(module.scaling, "images", images, {}, outputs=[PIXELS], opset=opset)
    after = as_onnx(
        EncoderAndHead(module.pooling, head), FOUND, module.run(pixels), {}, opset=opset
    )
    return described(merged(module, before, after, OUTPUTS), metadata)


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the exporter's warnings about itself and about torchvision, which is not needed."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def as_onnx(
    module: nn.Module,
    takes: str,
    trial: NDArray[Any],
    metadata: dict[str, str],
    *,
    outputs: Sequence[str] = OUTPUTS,
    opset: int | None = None,
) -> bytes:
    """The serialized graph with a dynamic batch."""
    batch = torch.export.Dim("batch")
    with quiet():
        program = torch.onnx.export(
            module.eval(),
            (torch.from_numpy(trial),),
            input_names=[takes],
            output_names=outputs,
            opset_version=opset,
            dynamic_shapes=({0: batch},),
            dynamo=True,
            verbose=False,
        )
    assert program is not None
    return described(program.model_proto, metadata)


def described(proto: Any, metadata: dict[str, str]) -> bytes:
    """The serialized graph with its metadata."""
    for key, value in metadata.items():
        proto.metadata_props.add(key=key, value=value)
    data: bytes = proto.SerializeToString()
    return data


def about(classifier: PrototypeClassifier, encoder: ImageEncoder | None) -> dict[str, str]:
    """The metadata that a program needs to run the graph."""
    facts = {
        "semishot": __version__,
        "classes": json.dumps(classifier.classes_.tolist()),
        "reject": json.dumps(classifier.reject),
        "temperature": json.dumps(classifier.temperature_),
        "normalization": classifier.normalization_,
        "tolerance": json.dumps(TOLERANCE),
        "encoder": "features" if encoder is None else encoder.name,
    }
    if encoder is not None:
        facts["height"], facts["width"] = str(encoder.height), str(encoder.width)
        facts["channels"], facts["identity"] = str(encoder.channels), encoder.identity
        framing: Any = encoder.prepare
        facts["resize"] = json.dumps({"rule": type(framing).__name__.lower(), **asdict(framing)})
    return facts
