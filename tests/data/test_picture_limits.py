"""A picture takes the memory and time that are promised, whatever its format and mode, or is refused."""

import io
import struct
import sys
import threading

import numpy as np
import pytest
from PIL import Image

from semishot.data import memory_budget, metadata_limits, picture_limits
from semishot.data.decoding import decode, opened, quiet, upright
from semishot.data.framing import Ink, Middle, Whole
from semishot.data.memory_budget import Budget
from semishot.data.picture_limits import MOST_MEMORY, MOST_SIDE, SPARE, memory
from semishot.data.thumbnails import thumbnail
from semishot.errors import InputError
from support.images import encoded, noise
from support.peaks import measured
from support.worst_pictures import bmp, many_scans, pictures, png, saved, tiff

linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process's peak")
FRAMINGS = {
    "drawings": Ink(),
    "photographs": Middle(260, 260, 0.9),
    "pools": Whole(84, 84, 3),
    "a page": thumbnail,
    "label": lambda image: thumbnail(image, 2048, 88, optimize=False),
}


def framed(data, framing):
    with quiet(), opened(data, "it") as image:
        return framing(image)


def predicted(data):
    with quiet(), opened(data, "it") as image:
        return memory(image, data) / 1e6


@linux
@pytest.mark.parametrize("framing", FRAMINGS)
@pytest.mark.parametrize("size", [(50_000, 1), (1, 50_000), (MOST_SIDE, 1), (1, MOST_SIDE)])
def test_a_long_thin_picture_takes_no_square_of_its_side(size, framing):
    """50,000 x 1 pixels took 2.8 GB as a drawing."""
    data = encoded(Image.new("L", size))
    assert measured(lambda: framed(data, FRAMINGS[framing])).megabytes < 60


@linux
def test_a_tall_picture_is_not_widened_before_it_is_shrunk():
    """A resize of lines first would hold 4,096 x 200,000 pixels: 3.2 GB."""
    data = encoded(Image.new("RGB", (1, MOST_SIDE)))
    assert measured(lambda: framed(data, Whole(4096, 4096))).megabytes < 300


@linux
@pytest.mark.parametrize("mode", ["gray", "key", "RGB"])
def test_16_bits_take_no_wider_copies(mode):
    """Copies of 8 bytes for each pixel would take 64 MB each."""
    chunks = [b"tRNS\0\7"] if mode == "key" else []
    data = png((2800, 2800), 16, 2 if mode == "RGB" else 0, *chunks)
    assert measured(lambda: decode(data, "it", 84)).megabytes < 80


QUICK = (
    "PNG RGBA 16", "PNG gray 16 key", "PNG palette alpha", "JPEG RGB progressive", "JPEG CMYK",
    "JPEG CMYK progressive turned", "TIFF RGB 16 one strip", "TIFF RGBA 8 turned one strip",
    "TIFF YCbCr one strip", "TIFF gray 32 strips", "GIF disposed", "WEBP RGBA lossless", "BMP RLE",
    "PPM gray to 1000",
)  # fmt: skip


@linux
@pytest.mark.parametrize("name", QUICK)
def test_a_picture_takes_at_most_what_is_predicted(name):
    """Smaller ones of the kinds that the slow test makes as large as allowed."""
    data = dict(pictures((2000, 2000)))[name]()
    found = measured(lambda: decode(data, "it", 84))
    assert found.megabytes <= predicted(data)


SIDE, COPIES = 4096, 3
"""Of the input of the largest encoder, and how many of it there are at once."""


@linux
@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_largest_picture_of_every_format_and_mode_stays_below_the_bound(tmp_path):
    """The peak with the bytes of the file; what a picture takes to make does not count.

    Pictures take most in RGB; every other way is tried with some that are worst. The input of an encoder
    of 4,096 pixels a side is large by itself.
    """
    wrong, ways = {}, {**FRAMINGS, "onnx": Middle(SIDE, SIDE, 1.0)}
    path = tmp_path / "picture"
    for name, make in pictures():
        measured(lambda make=make: path.write_bytes(make()))
        for way in ways if name in QUICK else ["pools"]:
            found = measured(lambda f=ways[way]: framed(path.read_bytes(), f), InputError)
            print(f"{name:40} {way:12} {found.megabytes:6.0f} MB {found.seconds:6.1f} s")
            most = (MOST_MEMORY + (COPIES * 3 * SIDE**2 if way == "onnx" else 0)) / 1e6
            if found.megabytes > most or (found.failed and "float" not in name):
                wrong[name, way] = found
    assert not wrong


def test_a_jpeg_that_takes_too_much_is_decoded_at_half_its_size(monkeypatch):
    data = saved("RGB", (1000, 800), "JPEG", progressive=True, subsampling=0)
    with opened(data, "it") as image:
        needed = memory(image, data)
        assert needed >= len(data) + (6 + 4) * 1000 * 800 + SPARE
    monkeypatch.setattr(picture_limits, "MOST_MEMORY", needed - 1)
    with opened(data, "it") as image, upright(image) as seen:
        assert seen.size == (500, 400)
    monkeypatch.setattr(picture_limits, "MOST_MEMORY", SPARE + 6 * 1000 * 800)
    with pytest.raises(InputError, match="it has 1,000 x 800 pixels in a form that takes 2. MB of"):
        decode(data, "it", 28)


def segment(kind: int, content: bytes) -> bytes:
    return struct.pack(">BBH", 255, kind, len(content) + 2) + content


JPEG = encoded(noise(0, 16, 16, 3), "JPEG")
PROGRESSIVE = encoded(noise(0, 16, 16, 3), "JPEG", progressive=True)
GIF = encoded(noise(0, 16, 16), "GIF")
GIF_BLOCKS = 13 + (3 << (GIF[10] & 7) + 1)
FEW = {
    metadata_limits: {
        "MOST_CHUNKS": 10, "MOST_METADATA": 2**20, "MOST_SEGMENTS": 20, "MOST_BLOCKS": 20,
        "MOST_TAGS": 30, "MOST_VALUES": 1000, "MOST_ODD": 2000,
    },
    picture_limits: {"SLOW_BYTES": 500, "MOST_COMMENTS": 5, "MOST_SCANNED": 5000},
}  # fmt: skip


def allow_few(monkeypatch) -> None:
    for module, limits in FEW.items():
        for name, value in limits.items():
            monkeypatch.setattr(module, name, value)


def in_jpeg(*segments: bytes) -> bytes:
    return JPEG[:2] + b"".join(segments) + JPEG[2:]


def in_gif(blocks: bytes) -> bytes:
    return GIF[:GIF_BLOCKS] + blocks + GIF[GIF_BLOCKS:]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (png((MOST_SIDE + 1, 1), 8, 0), "200,001 x 1 pixels, a side of more than 200,000"),
        (png((8, 8), 8, 0, *[b"tIME1234567"] * 10), "more than 10 chunks"),
        (png((8, 8), 8, 0, b"tEXtkey\0" + bytes(2**20)), "texts that may be longer than 1,048,576"),
        (png((8, 8), 8, 0, *[b"zTXtkey\0\0x"] * 2), "texts that may be longer than 1,048,576"),
        (in_jpeg(*[segment(0xFE, b"")] * 30), "too much before its pixels"),
        (in_jpeg(*[segment(0xE1, b"Exif\0\0")] * 101), "too much before its pixels"),
        (in_jpeg(b"\xff\xfe\0\2" + bytes(2**20)), "too much before its pixels"),
        (in_jpeg(segment(0xF0, bytes(2000))), "too much before its pixels"),
        (JPEG[:3] + b"\xd9" + bytes(2**20), "too much before its pixels"),
        (in_gif(b"!\xfe" + b"\1a" * 20 + b"\0"), "more than 20 blocks before its first frame"),
        (in_gif(bytes(21)), "more than 20 blocks before its first frame"),
        (tiff((8, 8), (8,), 1, 1, **{f"t{n}": (1,) for n in range(60000, 60030)}), "30 tags"),
        (tiff((8, 8), (8,), 1, 1, t60000=(1,) * 1000), "1,000 values of tags"),
        (many_scans(101, (16, 16)), "16 x 16 pixels in 101 scans"),
        (many_scans(20, (16, 16)), "16 x 16 pixels in 20 scans"),
        (bmp((100, 100), 8, b"\1\1" * 300), "form that takes too long to decode: save it as PNG"),
        (b"P2 2 2 255\n" + b"1 " * 300, "form that takes too long to decode: save it as PNG"),
        (b"P2 2 2 255\n" + b"#\n" * 6 + b"1 1 1 1\n", "2 x 2 pixels and more than 5 comments"),
    ],
)
def test_what_takes_too_much_memory_or_time_is_refused_before_it_is_decoded(
    data, message, monkeypatch
):
    allow_few(monkeypatch)
    with pytest.raises(
        InputError, match=rf"photo.x has .*{message}.*; replace or remove this file"
    ):
        decode(data, "photo.x", 4)


def test_what_is_usual_is_read(monkeypatch):
    allow_few(monkeypatch)
    exif = segment(0xE1, b"Exif\0\0" + JPEG)
    for data in (
        JPEG, PROGRESSIVE, in_jpeg(exif, segment(0xE2, JPEG * 10)), GIF, in_gif(b"!\xfe\3abc\0"),
        png((8, 8), 8, 0, b"tEXtkey\0value"), tiff((8, 8), (8,), 1, 1),
    ):  # fmt: skip
        decode(data, "it", 4)


def test_what_follows_the_header_or_the_only_scan_is_not_searched(monkeypatch):
    """Counting in megabytes of pixels would take a tenth of the time to decode them."""
    allow_few(monkeypatch)
    scan = JPEG[JPEG.index(b"\xff\xda") : -2]
    decode(JPEG + b"Exif\0\0" * 101, "it", 4)
    decode(JPEG + scan * 101, "it", 4)
    with pytest.raises(InputError, match="cannot read it .broken data stream"):
        decode(JPEG[:-2] + scan * 101, "it", 4)  # libjpeg expects one scan, and ends at the second


def test_a_jpeg_is_decoded_in_one_call(monkeypatch):
    """Between two of them a thread waits for those that run Python."""
    data, given = encoded(noise(0, 512, 512, 3), "JPEG", quality=95), []
    assert len(data) > 2**17

    class Decoder:
        def __init__(self, real):
            self.real = real

        def __getattr__(self, name):
            return getattr(self.real, name)

        def decode(self, data):
            given.append(data)
            return self.real.decode(data)

    real = Image._getdecoder
    monkeypatch.setattr(Image, "_getdecoder", lambda *about: Decoder(real(*about)))
    decode(data, "it", 28)
    assert given == [data]


def test_a_tile_larger_than_its_picture_counts():
    data = tiff((8, 8), (8,), 1, None, t322=(60_000,), t323=(60_000,), t324=(300,), t325=(9,))
    with pytest.raises(InputError, match="in a form that takes 3,6.. MB of memory to decode"):
        decode(data, "it", 4)


def claiming(width: int, height: int) -> bytes:
    """A WebP whose header says that it is larger than it is."""
    data = bytearray(saved("RGB", (16, 16), "WEBP", lossless=True))
    said = int.from_bytes(data[21:25], "little") >> 28 << 28
    data[21:25] = (said | (height - 1) << 14 | (width - 1)).to_bytes(4, "little")
    return bytes(data)


def test_webp_is_read_up_to_39_million_pixels():
    """Its decoder takes 16 bytes for a pixel."""
    with opened(claiming(10_000, 3_890), "it") as image:
        assert image.size == (10_000, 3_890)
    with pytest.raises(InputError, match="takes 6.. MB of memory to decode, more than 640: save"):
        decode(claiming(10_000, 3_901), "it", 4)


@pytest.mark.parametrize("largest", [1, 254, 1000, 4095, 65_534])
@pytest.mark.parametrize("kind", [5, 6])
def test_a_ppm_of_any_largest_value_is_what_pillow_makes_of_it(kind, largest):
    width, height = 7, 5
    shape = (height, width, 1 if kind == 5 else 3)
    samples = np.random.default_rng(largest).integers(0, largest + 1, shape)
    data = b"P%d %d %d %d\n" % (kind, width, height, largest)
    data += samples.astype(">u2" if largest > 255 else "u1").tobytes()
    wide = np.asarray(Image.open(io.BytesIO(data))).astype(int).reshape(shape)
    expected = (wide * 255 + 32767) // 65535 if kind == 5 and largest > 255 else wide
    with opened(data, "it") as image, upright(image, shape[2]) as seen:
        assert (np.asarray(seen).reshape(shape) == expected).all()
    with pytest.raises(InputError, match="truncated"):
        decode(data[:-1], "it", 4)


def test_a_picture_in_parts_is_the_picture_at_once(monkeypatch):
    """Of modes that are converted line by line."""
    rgba = noise(1, 50, 40, 4)
    for data in (
        encoded(rgba), encoded(noise(2, 50, 40).astype(np.uint16) * 257), encoded(rgba, "TIFF"),
        encoded(Image.fromarray(rgba[..., :3]).convert("P")),
        encoded(Image.fromarray(rgba).convert("LA")), encoded(Image.fromarray(rgba[..., 0]), "GIF"),
        encoded(Image.fromarray(rgba, "CMYK"), "TIFF"),
    ):  # fmt: skip
        at_once = [decode(data, "it", 30), decode(data, "it", 30, 1)]
        with monkeypatch.context() as patched:
            patched.setattr("semishot.data.decoding.AT_A_TIME", 100)
            in_parts = [decode(data, "it", 30), decode(data, "it", 30, 1)]
        assert all((a == b).all() for a, b in zip(at_once, in_parts, strict=True))


def test_a_drawing_that_is_shrunk_first_looks_the_same(monkeypatch):
    page = Image.new("L", (600, 60), 255)
    page.paste(0, (100, 20, 400, 40))
    whole = framed(encoded(page), Ink()).astype(int)
    monkeypatch.setattr("semishot.data.framing.LARGEST_SQUARE", 500)
    monkeypatch.setattr("semishot.data.framing.SHRUNK", 300)
    assert abs(framed(encoded(page), Ink()) - whole).max() <= 12


def test_columns_first_gives_nearly_what_lines_first_gives(monkeypatch):
    data = encoded(noise(3, 300, 20, 3))
    lines_first = framed(data, Middle(40, 30, 0.8)).astype(int)
    monkeypatch.setattr("semishot.data.decoding.MOST_BETWEEN", 100)
    assert abs(framed(data, Middle(40, 30, 0.8)) - lines_first).max() <= 2


def test_threads_share_one_budget():
    budget, most, start = Budget(10), [], threading.Barrier(8)

    def work() -> None:
        start.wait()
        for amount in (1, 4, 7, 10, 99):
            with budget.take(amount):
                most.append(budget.used)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(most) == 40
    assert max(most) <= 10
    assert budget.used == 0


def test_of_processes_one_at_a_time_decodes_a_large_picture():
    budget, held = Budget(MOST_MEMORY), threading.Lock()
    budget.one_large = held
    with budget.take(memory_budget.LARGE_MEMORY):
        assert not held.locked()
    with budget.take(memory_budget.LARGE_MEMORY + 1):
        assert held.locked()
    assert not held.locked()
