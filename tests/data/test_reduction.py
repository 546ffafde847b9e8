"""Drawings made smaller: OpenCV's own numbers, and properties of each way."""

import numpy as np
import pytest
from PIL import Image

from semishot.data.reduction import reduced, weights
from semishot.data.settings import REDUCTIONS

DRAWING = np.array(
    [
        [0, 0, 255, 255, 0, 0, 0],
        [0, 255, 255, 0, 0, 0, 255],
        [0, 255, 0, 0, 0, 255, 255],
        [255, 255, 0, 0, 255, 255, 0],
        [255, 0, 0, 255, 255, 0, 0],
    ],
    np.uint8,
)
PHOTOGRAPH = (np.arange(35).reshape(5, 7) ** 2 * 37 % 251).astype(np.uint8)
OPENCV = {
    "cubic": (
        [[34, 175, 14], [203, 0, 255], [149, 175, 30]],
        [[33, 117, 133], [83, 151, 98], [162, 190, 131]],
    ),
    "linear": (
        [[57, 170, 28], [170, 0, 255], [142, 170, 57]],
        [[47, 117, 132], [103, 151, 117], [160, 187, 131]],
    ),
    "area": (
        [[80, 138, 44], [138, 29, 182], [153, 138, 80]],
        [[64, 145, 133], [120, 180, 148], [143, 183, 131]],
    ),
    "nearest": (
        [[0, 255, 0], [0, 255, 0], [255, 0, 255]],
        [[0, 148, 90], [56, 236, 210], [2, 246, 33]],
    ),
}


@pytest.mark.parametrize("how", OPENCV)
def test_opencvs_numbers(how):
    """Of version 5.0.0: `cv2.resize(image, (3, 3), interpolation=cv2.INTER_...)`, 5x7 pixels to 3x3."""
    drawing, photograph = (np.array(numbers) for numbers in OPENCV[how])
    off = 1 if how == "linear" else 0
    assert np.abs(reduced(DRAWING, 3, how).astype(int) - drawing).max() <= off
    assert np.abs(reduced(PHOTOGRAPH, 3, how).astype(int) - photograph).max() <= 1


def test_antialiased_is_pillows_bicubic():
    expected = Image.fromarray(PHOTOGRAPH).resize((3, 3), Image.Resampling.BICUBIC)
    assert np.array_equal(reduced(PHOTOGRAPH, 3, "antialiased"), np.asarray(expected))


@pytest.mark.parametrize("how", [how for how in REDUCTIONS if how != "antialiased"])
def test_weights_of_a_pixel_sum_to_one_and_a_plain_image_stays_plain(how):
    assert weights(105, 28, how).sum(1) == pytest.approx(np.ones(28), abs=2 / 2048)
    assert np.array_equal(
        reduced(np.full((105, 105), 255, np.uint8), 28, how), np.full((28, 28), 255)
    )
    for row in weights(105, 28, how):
        taken = {"nearest": 1, "linear": 2, "cubic": 4, "area": 5}[how]
        assert 1 <= np.count_nonzero(row) <= taken
