"""Every kind of image becomes the right pixels, recomputed here, or one line that names it."""

import io
import struct

import numpy as np
import pytest
from PIL import Image, ImageFile

from semishot.data.decoding import FORMATS, MOST_PIXELS, decode, opened
from semishot.data.framing import Ink, Middle, Whole
from semishot.errors import InputError
from support.images import encoded, handmade_png

SIDE = 12
RGB = np.random.default_rng(0).integers(0, 256, (SIDE, SIDE, 3)).astype(np.uint8)
GRAY = RGB[..., 0]
WIDE = np.random.default_rng(1).integers(0, 256, (30, 50, 3)).astype(np.uint8)
LOSSLESS = {"PNG": {}, "BMP": {}, "TIFF": {}, "PPM": {}, "WEBP": {"lossless": True}}


def tiff(pixels: bytes, side: int, bits: int, photometric: int) -> bytes:
    """A little-endian grayscale TIFF of one strip, written by hand."""
    tags = {256: side, 257: side, 258: bits, 259: 1, 262: photometric, 277: 1, 278: side}
    tags |= {273: 8 + 2 + 12 * 9 + 4, 279: len(pixels)}  # the strip lies after the tags
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, tags[tag]) for tag in sorted(tags))
    return b"II*\0" + struct.pack("<IH", 8, len(tags)) + entries + bytes(4) + pixels


def as_last(pixels: np.ndarray) -> np.ndarray:
    """(C, H, W) -> (H, W, C)."""
    return pixels.transpose(1, 2, 0)


@pytest.mark.parametrize("form", LOSSLESS)
def test_color_is_kept_exactly_in_every_lossless_format(form):
    pixels = decode(encoded(RGB, form, **LOSSLESS[form]), "x", SIDE)
    assert pixels.dtype == np.uint8
    assert pixels.shape == (3, SIDE, SIDE)
    assert pixels.flags.c_contiguous
    assert pixels.flags.writeable
    assert (as_last(pixels) == RGB).all()


def test_gray_fills_three_channels_and_color_becomes_luma_in_one():
    three = decode(encoded(GRAY), "x", SIDE)
    assert (three == GRAY).all()
    assert (decode(encoded(GRAY), "x", SIDE, channels=1) == GRAY).all()
    luma = RGB @ np.array([0.299, 0.587, 0.114])  # ITU-R 601
    assert abs(decode(encoded(RGB), "x", SIDE, channels=1)[0] - luma).max() <= 0.51


@pytest.mark.parametrize("transparency", [1, b"\xff\x00\x80\xff"], ids=["one color", "alphas"])
def test_a_transparent_palette_color_lies_over_white(transparency):
    image = Image.fromarray((GRAY % 4).astype(np.uint8))
    colors = np.array([(255, 0, 0), (0, 9, 255), (7, 8, 9), (250, 251, 252)])
    image.putpalette(colors.ravel().tolist())
    alphas = np.array([255, 0, 255, 255] if transparency == 1 else list(transparency))[:, None]
    over_white = colors * (alphas / 255) + 255 * (1 - alphas / 255)
    shown = as_last(decode(encoded(image, transparency=transparency), "x", SIDE))
    assert abs(shown - over_white[GRAY % 4]).max() <= 1


@pytest.mark.parametrize("form", ["PNG", "TIFF", "WEBP"])
def test_alpha_is_composited_on_white(form):
    alpha = np.random.default_rng(2).integers(1, 256, (SIDE, SIDE, 1)).astype(np.uint8)
    alpha[0, 0], alpha[0, 1] = 1, 255
    data = encoded(np.concatenate([RGB, alpha], 2), form, **LOSSLESS[form])
    expected = RGB * (alpha / 255) + 255 * (1 - alpha / 255)
    assert abs(as_last(decode(data, "x", SIDE)) - expected).max() <= 1


@pytest.mark.parametrize("depth", [1, 8, 16])
def test_the_transparent_gray_of_a_png_is_white_at_every_depth(depth):
    """Samples 1 and a middle one (0 of one bit): the second is declared transparent."""
    key = 2 ** (depth - 1) if depth > 1 else 0
    samples = f"{1:0{depth}b}{key:0{depth}b}".ljust(max(8, 2 * depth), "0")
    line = int(samples, 2).to_bytes(len(samples) // 8, "big")
    data = handmade_png((2, 2), depth, 0, (b"\0" + line) * 2, b"tRNS" + struct.pack(">H", key))
    first = round(255 / (2**depth - 1))
    assert decode(data, "x", 2, 1).tolist() == [[[first, 255]] * 2]


ORIENTED = {
    1: lambda shown: shown,
    2: lambda shown: shown[:, ::-1],
    3: lambda shown: shown[::-1, ::-1],
    4: lambda shown: shown[::-1],
    5: lambda shown: shown.swapaxes(0, 1),
    6: lambda shown: np.rot90(shown),
    7: lambda shown: np.rot90(shown, 2).swapaxes(0, 1),
    8: lambda shown: np.rot90(shown, -1),
}
"""How a camera stores what was shown, by the orientation it writes beside it."""


@pytest.mark.parametrize("form", ["PNG", "TIFF", "WEBP"])
@pytest.mark.parametrize("orientation", ORIENTED)
def test_exif_rotated_equals_the_original(orientation, form):
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored = np.ascontiguousarray(ORIENTED[orientation](RGB))
    data = encoded(stored, form, exif=exif, **LOSSLESS[form])
    assert (as_last(decode(data, "x", SIDE)) == RGB).all()


def test_unreadable_exif_is_no_reason_to_refuse_an_image():
    data = encoded(RGB, exif=b"Exif\0\0what is this")
    assert (as_last(decode(data, "x", SIDE)) == RGB).all()


@pytest.mark.parametrize("form", ["PNG", "TIFF", "PPM"])
@pytest.mark.parametrize("channels", [1, 3])
def test_16_bits_are_scaled_not_clipped(form, channels):
    ramp = np.linspace(0, 65535, SIDE * SIDE).astype(np.uint16).reshape(SIDE, SIDE)
    pixels = decode(encoded(ramp, form), "x", SIDE, channels)
    assert abs(pixels - ramp / 257).max() <= 0.5
    assert pixels[0, 0, 0] == 0
    assert pixels[0, -1, -1] == 255
    assert (np.diff(pixels[0].ravel().astype(int)) >= 0).all()


def test_white_of_a_tiff_is_what_its_tags_say():
    ramp = np.linspace(0, 65535, SIDE * SIDE).astype("<u2")
    inverted = decode(tiff(ramp.tobytes(), SIDE, 16, 0), "x", SIDE, 1)
    assert abs(inverted.ravel() - (255 - ramp / 257)).max() <= 0.5
    twelve = [0, 4095, 2048, 1024]  # two samples in three bytes
    packed = b"".join(((a << 12) | b).to_bytes(3, "big") for a, b in (twelve[:2], twelve[2:]))
    assert decode(tiff(packed, 2, 12, 1), "x", 2, 1).tolist() == [[[0, 255], [128, 64]]]


@pytest.mark.parametrize(
    ("form", "options"),
    [("JPEG", {}), ("JPEG", {"progressive": True}), ("GIF", {}), *LOSSLESS.items()],
)
@pytest.mark.parametrize("share", [0.001, 0.5, 0.9])
def test_a_truncated_image_is_named(form, options, share):
    data = encoded(WIDE, form, **options)
    with pytest.raises(InputError, match="photo.x") as caught:
        decode(data[: max(1, int(len(data) * share))], "photo.x", SIDE)
    assert "\n" not in str(caught.value)
    assert "0x" not in str(caught.value)  # an address is no reason


EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "photo.x is empty"),
        (b"hello, world", "photo.x is not a readable image"),
        (EPS, "photo.x is not a readable image"),  # Pillow would start Ghostscript
        (encoded(np.zeros((4, 4), np.float32), "TIFF"), "photo.x .floating-point pixels"),
        (
            encoded(np.full((4, 4), 70_000, np.int32), "TIFF"),
            "cannot read photo.x .pixels from 70,000",
        ),
        (encoded(np.full((4, 4), -1, np.int32), "TIFF"), "cannot read photo.x .pixels from -1"),
    ],
    ids=["empty", "text", "eps", "float", "32 bits", "negative"],
)
def test_what_is_no_image_is_named(data, message):
    with pytest.raises(InputError, match=message) as caught:
        decode(data, "photo.x", 4)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("width", "message"),
    [
        (8_001, "has 8,001 x 8,000 pixels, more than"),
        (12_000, "has 12,000 x 8,000 pixels, more than"),
        (60_000, "has more than"),
    ],
    ids=["small", "warning", "error"],
)
def test_a_decompression_bomb_is_named_before_it_is_decoded(width, message, monkeypatch):
    """At sizes where Pillow is silent, warns and raises."""
    loaded = []
    monkeypatch.setattr(ImageFile.ImageFile, "load", lambda self: loaded.append(self))
    height = MOST_PIXELS // 8_000
    with pytest.raises(InputError, match=f"photo.x {message} 64,000,000 pixels"):
        decode(handmade_png((width, height), 8, 0, b""), "photo.x", SIDE)
    assert not loaded


@pytest.mark.parametrize("framing", [Whole(20, 30), Middle(20, 30, 0.9), Ink()])
@pytest.mark.parametrize("form", ["JPEG", "PNG", "TIFF"])
def test_a_framing_takes_an_opened_file_or_an_array(framing, form, tmp_path):
    path = tmp_path / "photo"
    path.write_bytes(encoded(WIDE, form))
    with Image.open(path) as image:
        pixels = framing(image)
        assert (framing(image) == pixels).all()  # it is still open
    with opened(path.read_bytes(), "it") as image:
        assert (framing(image) == pixels).all()
    assert pixels.shape == (framing.height, framing.width, framing.channels)
    if form == "PNG":
        assert (framing(WIDE) == pixels).all()


HEIC = pytest.mark.skipif("HEIF" not in FORMATS, reason="needs the extra heic")


def heic(picture: Image.Image, **options: object) -> bytes:
    import pillow_heif

    file = io.BytesIO()
    pillow_heif.from_pillow(picture).save(file, quality=90, **options)
    return file.getvalue()


@HEIC
def test_a_picture_of_a_phone_in_heic_is_read_like_a_jpeg():
    """Turned as its EXIF data say, which HEIC keeps as a transformation."""
    tall = Image.linear_gradient("L").resize((60, 40)).convert("RGB")
    lying = tall.transpose(Image.Transpose.ROTATE_90)
    exif = Image.Exif()
    exif[0x0112] = 6
    found = decode(heic(lying, exif=exif.tobytes()), "it", SIDE)
    expected = np.asarray(tall.resize((SIDE, SIDE), Image.Resampling.BILINEAR)).transpose(2, 0, 1)
    assert np.abs(found.astype(int) - expected).max() < 12


def test_without_the_extra_a_heic_is_not_read(monkeypatch):
    monkeypatch.delitem(FORMATS, "HEIF", raising=False)
    with pytest.raises(InputError, match="it is not a readable image"):
        decode(b"\0\0\0\x18ftypheic" + bytes(100), "it", SIDE)
