"""What is a drawing, and framings as JSON."""

import json

import numpy as np
import pytest
from PIL import Image, ImageDraw

from semishot.data.framing import Both, Ink, Middle, Whole, framing_from_json, is_drawing, to_json
from semishot.errors import InputError
from support.images import encoded, noise


def lines(side: int, paper: int = 255, ink: int = 0, mode: str = "L") -> bytes:
    image = Image.new("L", (side, side), paper)
    ImageDraw.Draw(image).line([5, 5, side - 9, side // 2, 8, side - 5], ink, width=3)
    return encoded(image.convert(mode))


@pytest.mark.parametrize("side", [33, 105, 128])
def test_lines_on_paper_of_any_two_grays_are_a_drawing(side):
    assert is_drawing(lines(side), "x")
    assert is_drawing(lines(side, mode="1"), "x")
    assert is_drawing(lines(side, paper=10, ink=200), "x")


def test_large_colored_or_full_images_are_not_drawings():
    assert not is_drawing(lines(129), "x")
    assert not is_drawing(lines(105, mode="RGB"), "x")
    assert not is_drawing(encoded(noise(0, 105, 105)), "x")
    assert is_drawing(encoded(noise(0, 32, 32)), "x")  # so small that 28x28 pixels hold it
    with pytest.raises(InputError, match="x is not a readable image"):
        is_drawing(b"hello", "x")


@pytest.mark.parametrize(
    "framing",
    [Ink(), Whole(84, 80), Whole(28, 28, 1, True), Middle(224, 200, 0.875), Both(9, 8, 1.0)],
)
def test_a_framing_survives_json(framing):
    assert framing_from_json(to_json(framing), "m") == framing


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "Zoom"}, "kind: invalid value 'Zoom'"),
        ({"height": 10**6}, "height: expected `int` <= 4096"),
        ({"channels": 2}, "channels must be 1 or 3, not 2"),
        ({"kind": "Middle", "share": 0}, "share must be above 0 and at most 1, not 0"),
    ],
)
def test_a_wrong_framing_is_one_line(change, message):
    text = json.dumps({**json.loads(to_json(Whole(84, 84))), **change})
    with pytest.raises(InputError, match=f"the framing of m: {message}"):
        framing_from_json(text, "m")


@pytest.mark.parametrize("size", [(90, 60), (40, 100)])
def test_both_is_the_whole_image_above_its_middle(size):
    image = noise(0, *size)
    seen = Both(20, 30, 0.75)(image)
    assert np.array_equal(seen[:20], Whole(20, 30, bicubic=True)(image))
    assert np.array_equal(seen[20:], Middle(20, 30, 0.75)(image))
