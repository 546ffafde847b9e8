"""A saved model -> one ONNX file: pixels or features in; class, probabilities, scores of strangers out.

Encoders from packages, and the classifier, are written by `OnnxGraph`; an encoder that is an ONNX file, or
that torch exports, is joined with the classifier by the package onnx.
Letters: B images, H x W pixels, C channels, D features.
"""

import json
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from semishot import __version__
from semishot.errors import InputError, reason_of
from semishot.estimator.classifier import PrototypeClassifier
from semishot.estimator.spaces import GaussianSpace
from semishot.sorter.classifier_graph import OUTPUTS, draw_classifier, output_types
from semishot.sorter.encoders.graph_builder import OPSET, TYPES, OnnxGraph
from semishot.sorter.encoders.image_encoder import ImageEncoder
from semishot.sorter.encoders.networks import open_session
from semishot.sorter.encoders.onnx_file import FLOATS, OnnxNetwork, onnx_package
from semishot.sorter.encoders.pretrained import draw_pretrained, is_pretrained
from semishot.sorter.out_folder import CLASSIFIER
from semishot.sorter.predict import read_saved_model, saved_folder
from semishot.system.files import write_whole

TOLERANCE = 1e-3
"""Largest allowed difference of probabilities and scores between the file and the classifier."""
BATCH, LANDMARKS = 7, 20
PIXELS, ENCODED = "pixels", "encoded"
"""The output of what prepares images, and the input of the classifier, where graphs are joined."""
REMEDY = "export the encoder again with opset 18 or later and a dynamic batch"


@dataclass(frozen=True)
class Exported:
    path: Path
    classes: int
    takes: str
    megabytes: float
    difference: float
    """The largest difference of a probability or score between the file and the classifier."""

    def __str__(self) -> str:
        return (
            f"{self.path}: {self.classes} classes, takes {self.takes}, {self.megabytes:.1f} MB; "
            f"differs from the classifier by {self.difference:.1e} at most"
        )


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

    The graph is compared with the classifier before the file is written. The classifier is also compared
    alone: the test images are rarely near a class.
    """
    if out.suffix != ".onnx":
        raise InputError(f"an ONNX file ends in .onnx, not {out.name!r}")
    takes = f"features ({classifier.n_features_in_})"
    data = classifier_model(classifier)
    difference = compare(data, "features", feature_trials(classifier), classifier, np.asarray)
    if encoder is not None:
        takes = f"uint8 images ({' x '.join(map(str, encoder.shape))})"
        data, trials = model_with_encoder(classifier, encoder), image_trials(encoder)
        difference = max(difference, compare(data, "images", trials, classifier, encoder.encode))
    write_whole(out, data)
    return Exported(out, len(classifier.classes_), takes, len(data) / 1e6, difference)


def classifier_model(classifier: PrototypeClassifier) -> bytes:
    """Features -> outputs."""
    graph = OnnxGraph()
    draw_classifier(graph, classifier, "features")
    inputs = {"features": ("float32", ("batch", classifier.n_features_in_))}
    return graph.model(inputs, output_types(classifier), about(classifier, None))


def model_with_encoder(classifier: PrototypeClassifier, encoder: ImageEncoder) -> bytes:
    """Images -> outputs."""
    facts = about(classifier, encoder)
    shape = ("batch", *encoder.shape)
    if is_pretrained(encoder.name):
        graph = OnnxGraph()
        draw_classifier(graph, classifier, draw_pretrained(graph, encoder.name, "images"))
        return graph.model({"images": ("uint8", shape)}, output_types(classifier), facts)
    network: Any = encoder.network("cpu")
    if isinstance(network, OnnxNetwork):
        return with_onnx_encoder(network, classifier, shape, facts)
    part = Part(by_torch(network.module, image_trials(encoder)), "images", "features")
    after = OnnxGraph()
    draw_classifier(after, classifier, ENCODED)
    inputs = {ENCODED: ("float32", ("batch", encoder.features))}
    head = Part(after.model(inputs, output_types(classifier)), ENCODED, "")
    return joined([part, head], encoder.name, facts)


def with_onnx_encoder(
    network: OnnxNetwork,
    classifier: PrototypeClassifier,
    shape: tuple[Any, ...],
    facts: Mapping[str, str],
) -> bytes:
    """The user's graph between two of ours: what prepares pixels, and pooling with the classifier."""
    if network.fixed_batch:
        raise InputError(
            f"{network.name} takes {network.batch} image(s) at once, and the exported file would "
            f"too: {REMEDY}"
        )
    before, kind = OnnxGraph(), "uint8"
    pixels, preparation = "images", network.preparation
    if preparation.mean:
        kind = np.dtype(FLOATS[network.input.type]).name
        mean, std = (
            before.constant([255 * value for value in values])
            for values in (preparation.mean, preparation.std)
        )
        pixels = before.add("Cast", pixels, to=TYPES["float32"])
        pixels = before.add("Div", before.add("Sub", pixels, mean), std)
        pixels = before.add("Cast", pixels, to=TYPES[kind])
    order = [0, 1, 2, 3] if network.channels_last else [0, 3, 1, 2]
    before.add("Transpose", pixels, perm=order, output=PIXELS)
    inputs, laid = {"images": ("uint8", shape)}, [shape[axis] for axis in order]
    prepare = before.model(inputs, {PIXELS: (kind, laid)})

    trial = network.run(network.scaled(np.zeros((1, *shape[1:]), np.uint8)))
    after = OnnxGraph()
    features = after.add("Cast", ENCODED, to=TYPES["float32"])
    if trial.ndim == 4:
        axes = (1, 2) if network.channels_last else (2, 3)
        features = after.add("ReduceMean", features, after.integers(*axes), keepdims=0)
    elif trial.ndim == 3 and preparation.tokens == "first":
        features = after.add("Gather", features, after.constant(0, np.int64), axis=1)
    elif trial.ndim == 3:
        features = after.add("ReduceMean", features, after.integers(1), keepdims=0)
    draw_classifier(after, classifier, features)
    inputs = {ENCODED: (trial.dtype.name, ("batch", *trial.shape[1:]))}
    parts = [
        Part(prepare, "images", PIXELS),
        Part(network.data, network.input.name, preparation.output),
        Part(after.model(inputs, output_types(classifier)), ENCODED, ""),
    ]
    return joined(parts, network.name, facts)


@dataclass(frozen=True)
class Part:
    """A serialized model between others: the input that it is given, and the output that goes on."""

    model: bytes
    input: str
    output: str


def joined(parts: list[Part], name: str, metadata: Mapping[str, str]) -> bytes:
    """Models one after the other, as one model."""
    onnx = onnx_package("onnx", "export with this encoder")
    compose = onnx_package("onnx.compose", "export with this encoder")
    try:
        models = [onnx.load_model_from_string(part.model) for part in parts]
        opset = max(OPSET, *map(_opset, models))
        for number, model in enumerate(models):
            if _opset(model) < OPSET:
                converter = onnx_package("onnx.version_converter", "export")
                models[number] = converter.convert_version(model, OPSET)
        ir_version = max(model.ir_version for model in models)
        for number, model in enumerate(models):
            own = next(each for each in model.opset_import if each.domain in ("", "ai.onnx"))
            own.version, model.ir_version = max(own.version, opset), ir_version
            del model.metadata_props[:]  # those of two parts may contradict
            last = number == len(models) - 1
            models[number] = compose.add_prefix(
                model, f"part{number}/", rename_inputs=number > 0, rename_outputs=not last
            )
        whole = models[0]
        for number, model in enumerate(models[1:], 1):
            output, last = f"part{number - 1}/{parts[number - 1].output}", number == len(parts) - 1
            kept = OUTPUTS if last else [f"part{number}/{parts[number].output}"]
            edge = (output, f"part{number}/{parts[number].input}")
            whole = compose.merge_models(whole, model, [edge], outputs=kept)
        for key, value in metadata.items():
            whole.metadata_props.add(key=key, value=value)
        onnx.checker.check_model(whole)
        data: bytes = whole.SerializeToString()
    except Exception as error:  # onnx raises many types for graphs that it cannot join
        raise InputError(
            f"{name} cannot be joined with the classifier ({reason_of(error)}): {REMEDY}"
        ) from error
    return data


def _opset(model: Any) -> int:
    versions = (each.version for each in model.opset_import if each.domain in ("", "ai.onnx"))
    return max(versions, default=1)


def by_torch(module: Any, images: NDArray[np.uint8]) -> bytes:
    """A module as torch exports it, from `images` to `features`, with a dynamic batch."""
    import torch

    onnx_package("onnxscript", "export with this encoder")
    with quiet():
        program = torch.onnx.export(
            module,
            (torch.from_numpy(images),),
            input_names=["images"],
            output_names=["features"],
            opset_version=OPSET,
            dynamic_shapes=({0: torch.export.Dim("batch")},),
            dynamo=True,
            verbose=False,
        )
    assert program is not None
    data: bytes = program.model_proto.SerializeToString()
    return data


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
        framing = encoder.prepare
        facts |= dict(zip(("height", "width", "channels"), map(str, encoder.shape), strict=True))
        facts["identity"] = encoder.identity
        rule = {"rule": type(framing).__name__.lower(), **structs.asdict(framing)}
        facts["resize"] = json.dumps(rule)
        facts |= {"notice": encoder.notice} if encoder.notice else {}
    return facts


def feature_trials(classifier: PrototypeClassifier) -> NDArray[np.float32]:
    """Features near what the classifier compares with, at growing distances from it, and mixtures."""
    rng = np.random.default_rng(0)
    space, landmarks = classifier.space_, classifier.prototypes_  # (N, D)
    if isinstance(space, GaussianSpace):
        landmarks = (space.pivots * space.width + space.center)[:LANDMARKS]
    else:
        landmarks = landmarks * space.length
        if space.normalization == "centered":
            landmarks = landmarks + space.center
    noise = rng.normal(size=landmarks.shape) * np.abs(landmarks).mean()
    rows = [landmarks + amount * noise for amount in (0, 0.1, 0.3, 1, 3)]
    mixed = rng.dirichlet(np.ones(len(landmarks)), BATCH) @ landmarks
    return np.concatenate([*rows, mixed]).astype(np.float32)


def image_trials(encoder: ImageEncoder) -> NDArray[np.uint8]:
    """Noise, black, white, a slope, stripes and squares: uint8 (B, H, W, C)."""
    height, width, _ = encoder.shape
    y, x = np.mgrid[0:height, 0:width]
    drawn = [
        0 * x,
        0 * x + 255,
        255 * x // width,
        255 * (y // 4 % 2),
        255 * ((x // 8 + y // 8) % 2),
    ]
    images = [np.broadcast_to(each[..., None], encoder.shape) for each in drawn]
    images.append(np.random.default_rng(0).integers(0, 256, encoder.shape))
    return np.stack(images).astype(np.uint8)


def compare(
    data: bytes,
    takes: str,
    trials: NDArray[Any],
    classifier: PrototypeClassifier,
    encode: Callable[[NDArray[Any]], NDArray[Any]],
) -> float:
    """The largest difference between the graph and the classifier; InputError if it is too large."""
    session = open_session(data)
    features = encode(trials).astype(classifier.prototypes_.dtype)
    expected = classifier.predict_proba(features)
    scores = stranger = np.full(len(features), np.nan)
    classes = classifier.classes_[expected.argmax(1)]
    if classifier.members_ is not None:
        scores, classes = classifier.distractor_score(features), classifier.predict(features)
    if classifier.strangers_ is not None:
        stranger = classifier.stranger_proba(features)
    label, probabilities, score, strange = session.run(OUTPUTS, {takes: trials})
    alone = session.run(OUTPUTS, {takes: trials[:1]})[1]
    differences = [probabilities - expected, alone - probabilities[:1]]
    differences += [np.nan_to_num(score - scores), np.nan_to_num(strange - stranger)]
    worst = max(float(np.abs(each).max()) for each in differences)
    top = np.sort(np.column_stack([expected, np.zeros(len(expected))]), 1)
    tied = top[:, -1] - top[:, -2] < TOLERANCE  # a tie may be resolved either way
    if classifier.reject is not None:
        tied |= np.abs(scores - (1 - classifier.reject)) < TOLERANCE
    names = np.array([*classifier.classes_.tolist(), classifier.stranger_label_], object)
    unknown = np.isnan(score) != np.isnan(scores)
    if worst > TOLERANCE or unknown.any() or not (tied | (names[label] == classes)).all():
        raise InputError(
            f"the ONNX graph and the classifier disagree by {worst:.2g}, more than {TOLERANCE}, on {takes}: "
            "nothing was written; please report this with the encoder's name"
        )
    return worst
