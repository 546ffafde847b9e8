"""Does the ONNX graph agree with torch? Test images and features, and the comparison.

Letters: B images, H x W pixels, C channels, D features, N classes.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semishot.errors import InputError
from semishot.estimator.classifier import PrototypeClassifier
from semishot.estimator.spaces import GaussianSpace
from semishot.sorter.encoders.image_encoder import ImageEncoder
from semishot.sorter.encoders.onnx_files import cpu_session

OUTPUTS = ["label", "probabilities", "distractor_score", "stranger_probability"]
TOLERANCE = 1e-3
"""Largest allowed difference of probabilities and scores between onnxruntime and torch."""
BATCH = 7
LANDMARKS = 20


def feature_trials(classifier: PrototypeClassifier) -> NDArray[np.float32]:
    """Features near what the classifier compares with, at growing distances from it, and mixtures."""
    rng = np.random.default_rng(0)
    space = classifier.space_
    landmarks: NDArray[Any]
    if isinstance(space, GaussianSpace):
        landmarks = (space.pivots * space.width + space.center)[:LANDMARKS]
    else:
        landmarks = classifier.prototypes_ * space.length  # (N, D)
        if space.normalization == "centered":
            landmarks = landmarks + space.center
    noise = rng.normal(size=(len(landmarks), landmarks.shape[1])) * np.abs(landmarks).mean()
    rows = [landmarks + amount * noise for amount in (0, 0.1, 0.3, 1, 3)]
    mixed = rng.dirichlet(np.ones(len(landmarks)), BATCH) @ landmarks
    return np.concatenate([*rows, mixed]).astype(np.float32)


def image_trials(encoder: ImageEncoder) -> NDArray[np.uint8]:
    """Noise, black, white, a slope, stripes, squares and a disk: uint8 (B, H, W, C)."""
    rng = np.random.default_rng(0)
    height, width, channels = encoder.height, encoder.width, encoder.channels
    y, x = np.mgrid[0:height, 0:width]
    disk = (y - height / 2) ** 2 + (x - width / 2) ** 2 < (min(height, width) / 3) ** 2
    drawn = [0 * x, 0 * x + 255, 255 * x // width, 255 * (y // 4 % 2), 255 * disk]
    drawn.append(255 * ((x // 8 + y // 8) % 2))
    structured = [np.repeat(each[..., None], channels, -1) for each in drawn]
    structured.append(rng.integers(0, 256, (height, width, channels)))
    return np.stack(structured).astype(np.uint8)


def compare(
    data: bytes,
    takes: str,
    trials: NDArray[Any],
    classifier: PrototypeClassifier,
    embed: Callable[[NDArray[Any]], NDArray[Any]],
) -> float:
    """The largest difference between onnxruntime and the classifier; InputError if it is too large."""
    session = cpu_session(data, 1, "export")  # of few images, threads would wait for each other
    features = embed(trials).astype(classifier.prototypes_.dtype)
    expected = classifier.predict_proba(features)
    scores = stranger = np.full(len(features), np.nan)
    classes = classifier.classes_[expected.argmax(1)]
    if classifier.members_ is not None:
        scores = classifier.distractor_score(features)
        classes = classifier.predict(features)
    if classifier.strangers_ is not None:
        stranger = classifier.stranger_proba(features)
    known = [*classifier.classes_.tolist(), classifier.stranger_label_]  # place -1 is the last
    found = [session.run(OUTPUTS, {takes: part}) for part in (trials, trials[:1])]
    label, probabilities, score, strange = found[0]
    worst = float(np.abs(probabilities - expected).max())
    for mine, theirs in ((score, scores), (strange, stranger)):
        worst = max(worst, float(np.nan_to_num(np.abs(mine - theirs)).max()))
    top = np.sort(np.column_stack([expected, np.zeros(len(expected))]), 1)
    close = top[:, -1] - top[:, -2] < TOLERANCE  # a tie may be resolved either way
    if classifier.reject is not None:
        close |= np.abs(scores - (1 - classifier.reject)) < TOLERANCE
    agree = [known[place] == name for place, name in zip(label, classes.tolist(), strict=True)]
    alone = np.abs(found[1][1] - probabilities[:1]).max()
    wrong = np.isnan(score) != np.isnan(scores)
    if worst > TOLERANCE or alone > TOLERANCE or wrong.any() or not (close | agree).all():
        raise InputError(
            f"the ONNX graph and torch disagree by {worst:.2g}, more than {TOLERANCE}, on {takes}: "
            "nothing was written; please report this with the encoder's name"
        )
    return worst
