"""A saved model -> one ONNX file: pixels or features in; class, probabilities, scores of strangers out.

Letters: B images, V views of an image, H x W pixels, C channels, D features.
"""

import json
from pathlib import Path

import numpy as np
from msgspec import structs

from semishot import __version__
from semishot.errors import InputError
from semishot.estimator.classifier import PrototypeClassifier
from semishot.estimator.spaces import Array
from semishot.sorter.classifier_graph import OUTPUTS, draw_classifier
from semishot.sorter.encoders.graph import FEATURES, IMAGES, OnnxGraph, node
from semishot.sorter.encoders.image_encoder import Features, ImageEncoder, Pixels, open_session
from semishot.sorter.out_folder import read_saved_model
from semishot.system.files import write_whole

TOLERANCE, ALONE = 1e-3, 0.01
"""Largest allowed difference of probabilities between the file and the classifier. Features of which no row
of the graph has a larger cosine are no trial: rounding decides which of their neighbours count."""
BATCH, LANDMARKS = 7, 20
OLDEST_OPSET = 11
"""The first one with all operators of the classifier."""


def export(model: Path, out: Path) -> str:
    """Write `out` from a folder that `semishot classify` left, or from a saved PrototypeClassifier; a line
    that says what it is, with the largest difference of a probability or score from the classifier.

    It takes images, or features if there is no encoder, and is compared with the classifier before it is
    written. The classifier is also compared alone: the test images are rarely near a class.
    """
    if out.suffix != ".onnx":
        raise InputError(f"an ONNX file ends in .onnx, not {out.name!r}")
    encoder = None
    if model.is_dir():
        fitted, encoder = read_saved_model(model)
        classifier = PrototypeClassifier.from_fitted(fitted)
    else:
        classifier = PrototypeClassifier.load(model)
    data, trials = graph_of(classifier, None), feature_trials(classifier)
    takes, difference = f"features ({trials.shape[1]})", compare(data, trials, trials, classifier)
    if encoder is not None:
        takes = f"uint8 images ({' x '.join(map(str, encoder.shape))})"
        data, images = graph_of(classifier, encoder), image_trials(encoder)
        difference = max(difference, compare(data, images, encoder.encode(images), classifier))
    write_whole(out, data)
    return (
        f"{out}: {len(classifier.classes_)} classes, takes {takes}, {len(data) / 1e6:.1f} MB; "
        f"differs from the classifier by {difference:.1e} at most"
    )


def graph_of(classifier: PrototypeClassifier, encoder: ImageEncoder | None) -> bytes:
    """Features or images -> outputs, with the metadata that a program needs to run it."""
    graph, width = OnnxGraph(), classifier.n_features_in_
    facts = {
        "semishot": __version__,
        "classes": json.dumps(classifier.classes_.tolist()),
        "reject": json.dumps(classifier.reject),
        "tolerance": json.dumps(TOLERANCE),
        "encoder": "features" if encoder is None else encoder.name,
    }
    if encoder is None:
        features = graph.input(FEATURES, "float32", "batch", width)
    else:
        images = graph.input(IMAGES, "uint8", "batch", *encoder.shape)
        views = node("Reshape", images, [-1, *encoder.view_shape])
        count = encoder.shape[0] // encoder.view_shape[0]
        by_view = node("Reshape", graph.include(encoder.graph, views), [-1, count, width])
        if encoder.batch is not None or graph.opsets[""] < OLDEST_OPSET:
            raise InputError(
                f"{encoder.name} takes {encoder.batch or 'any number of'} images at once, in opset "
                f"{graph.opsets['']}: export the encoder again with a dynamic batch and opset 18 or later"
            )
        features = node("ReduceMean", by_view, [1], keepdims=0)
        framing = encoder.prepare
        facts |= dict(zip(("height", "width", "channels"), map(str, encoder.shape), strict=True))
        facts["identity"] = encoder.identity
        rule = {"rule": type(framing).__name__.lower(), **structs.asdict(framing)}
        facts["resize"] = json.dumps(rule)
        facts |= {"notice": encoder.notice} if encoder.notice else {}
    draw_classifier(classifier, features)
    return graph.serialized(**facts)


def feature_trials(classifier: PrototypeClassifier) -> Features:
    """Features near what the classifier compares with, at growing distances from it, and mixtures. Far from
    all of it, neighbours are equally near, and which of them count is rounding."""
    rng = np.random.default_rng(0)
    rule = classifier.fitted_.learned.rule
    space = rule.space
    landmarks = space.pivots * space.width
    if space.by_cosine > 0:
        rows = rule.reference.rows[:LANDMARKS, : len(space.center)]
        landmarks = np.concatenate([rows / space.by_cosine**0.5 + space.center, landmarks])
    landmarks = landmarks[:LANDMARKS] * space.scale + space.shift
    noise = rng.normal(size=landmarks.shape) * np.abs(landmarks).mean()
    shifted = [landmarks + amount * noise for amount in (0, 0.05, 0.1, 0.2, 0.3)]
    mixed = rng.dirichlet(np.ones(len(landmarks)), BATCH) @ landmarks
    trials: Features = np.concatenate([*shifted, mixed]).astype(np.float32)
    cosines: Array = space(trials) @ rule.reference.rows.T
    near: Features = trials[cosines.max(1) > ALONE]
    return near


def image_trials(encoder: ImageEncoder) -> Pixels:
    """From black over noise of growing contrast to white: uint8 (B, H, W, C)."""
    noise = np.random.default_rng(0).uniform(-1, 2, (BATCH, *encoder.shape))
    contrast = np.linspace(0, 1, BATCH).reshape(-1, 1, 1, 1)
    return (255 * noise * contrast).clip(0, 255).astype(np.uint8)


def compare(
    data: bytes, given: Pixels | Features, features: Features, classifier: PrototypeClassifier
) -> float:
    """The largest difference between the graph, given images or features, and the classifier, given these
    features; InputError if it is too large."""
    session = open_session(data)
    takes, features = session.get_inputs()[0].name, features.astype(classifier.prototypes_.dtype)
    members, stranger = classifier.predict_proba(features), classifier.stranger_proba(features)
    label, *numbers = session.run(OUTPUTS, {takes: given})
    alone = np.column_stack(session.run(OUTPUTS[1:], {takes: given[:1]}))
    found, expected = np.column_stack(numbers), np.column_stack([members, stranger])
    worst = max(float(np.abs(found - expected).max()), float(np.abs(found[:1] - alone).max()))
    two = np.sort(np.pad(members, [(0, 0), (1, 0)]), 1)[:, -2:]
    sure = two[:, 1] - two[:, 0] > TOLERANCE  # a tie may be resolved either way
    if classifier.reject is not None:
        cutoff = classifier.cutoff_
        edge = (1 - stranger) * two[:, 1] if cutoff is None else cutoff
        sure &= np.abs(stranger - edge) > TOLERANCE
    names = np.array([*classifier.classes_.tolist(), classifier.stranger_label_], object)
    if worst > TOLERANCE or (names[label] != classifier.predict(features))[sure].any():
        raise InputError(
            f"the ONNX graph and the classifier disagree by {worst:.2g}, more than {TOLERANCE}, on {takes}: "
            "nothing was written; please report this with the encoder's name"
        )
    return worst
