"""Thumbnails show what the encoder sees, are small, and keep nothing that a camera wrote."""

import base64
import io

import numpy as np
import pytest
from PIL import Image

from semishot.data.thumbnails import SIDE, data_uri, pool_thumbnail, thumbnail


def shown(data: bytes) -> np.ndarray:
    """(H, W, C), of an encoded image or of its thumbnail."""
    with Image.open(io.BytesIO(data)) as image:
        return np.asarray(image).astype(int)


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "RGBA", "LA", "CMYK", "I;16", "I"])
@pytest.mark.parametrize("size", [(300, 200), (1, 1), (2000, 3)])
def test_a_thumbnail_of_any_kind_of_image_is_a_small_jpeg(mode, size):
    with Image.open(io.BytesIO(thumbnail(Image.new(mode, size)))) as small:
        assert (small.format, small.mode) == ("JPEG", "RGB")
        assert max(small.size) <= SIDE
        assert min(small.size) >= 1


def test_thumbnails_are_on_white_upright_and_keep_no_metadata():
    clear = Image.new("RGBA", (50, 50), (0, 0, 0, 0))
    assert shown(thumbnail(clear))[25, 25].tolist() == [255, 255, 255]
    turned = Image.new("RGB", (80, 40))
    turned.getexif()[0x0112] = 6  # lies on its side
    turned.getexif()[0x8825] = 1
    turned.info["comment"] = b"taken at home"
    data = thumbnail(turned)
    with Image.open(io.BytesIO(data)) as small:
        assert small.size == (40, 80)
        assert not small.getexif()
    assert b"home" not in data


def test_thumbnails_of_a_pool_are_ink_on_paper_or_photographs():
    ink = np.zeros((1, 28, 28), np.uint8)
    ink[0, 3, 4] = 255
    assert (shown(pool_thumbnail(ink)) == 255 - ink[0]).all()
    photograph = np.full((3, 84, 84), 90, np.uint8)
    assert abs(shown(pool_thumbnail(photograph)) - 90).max() <= 2
    for pixels, kind in ((ink, "png"), (photograph, "jpeg")):
        head, text = data_uri(pool_thumbnail(pixels)).split(",")
        assert head == f"data:image/{kind};base64"
        assert base64.b64decode(text) == pool_thumbnail(pixels)
