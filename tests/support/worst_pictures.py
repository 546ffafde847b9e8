"""The worst pictures that may be read, of every format and mode: as large as allowed, flat, a few kB.

Each is made by hand where Pillow would not write it, and never takes more memory than its file.
"""

import io
import itertools
import struct
import zlib
from collections.abc import Callable, Iterator

from PIL import Image

Size = tuple[int, int]
Make = Callable[[], bytes]
SQUARE: Size = (8000, 8000)
LARGEST: dict[str, Size] = {
    "WEBP": (16383, 2370), "one strip of 6 bytes": (7800, 7800), "one strip of 8 bytes": (7100, 7100),
    "slow": (4000, 4000),
}  # fmt: skip
"""Where less than 64 million pixels are read: to what MOST_MEMORY allows."""


def flat(size: int, value: int = 85) -> bytes:
    """`size` equal bytes, compressed by zlib piece by piece."""
    packer, piece = zlib.compressobj(1), bytes([value]) * 2**20
    parts = [packer.compress(piece[: min(2**20, size - at)]) for at in range(0, size, 2**20)]
    return b"".join([*parts, packer.flush()])


def png(size: Size, depth: int, kind: int, *chunks: bytes, interlaced: bool = False) -> bytes:
    """Every sample is 0. `kind` 0 is gray, 2 RGB, 3 a palette, 4 gray with alpha, 6 RGBA."""

    def chunk(name: bytes, content: bytes) -> bytes:
        check = zlib.crc32(name + content)
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", check)

    bits = depth * {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[kind]
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", *size, depth, kind, 0, 0, interlaced))
    body = chunk(b"IDAT", flat(_lines(size, bits, interlaced), 0)) + chunk(b"IEND", b"")
    middle = b"".join(chunk(c[:4], c[4:]) for c in chunks)
    return b"\x89PNG\r\n\x1a\n" + head + middle + body


def _lines(size: Size, bits: int, interlaced: bool) -> int:
    """The bytes of all lines with their filters."""
    width, height = size
    if not interlaced:
        return height * (1 + -(-width * bits // 8))
    passes = [(0, 8, 0, 8), (4, 8, 0, 8), (0, 4, 4, 8), (2, 4, 0, 4), (0, 2, 2, 4), (1, 2, 0, 2)]
    passes.append((0, 1, 1, 2))
    counts = [(-(-(width - x) // dx), -(-(height - y) // dy)) for x, dx, y, dy in passes]
    return sum(h * (1 + -(-w * bits // 8)) for w, h in counts if w > 0 and h > 0)


def tiff(
    size: Size,
    bits: tuple[int, ...],
    photometric: int,
    rows: int | None = None,
    **more: tuple[int, ...],
) -> bytes:
    """Strips that all lie at one place in the file; without `rows`, one compressed strip."""
    width, height = size
    line = -(-width * sum(bits) // 8)
    strip = bytes(line * rows) if rows else flat(line * height, 0)
    count = -(-height // rows) if rows else 1
    tags: dict[int, tuple[int, ...]] = {
        256: (width,), 257: (height,), 258: bits, 259: (1 if rows else 8,), 262: (photometric,),
        273: (0,) * count, 277: (len(bits),), 278: (rows or height,), 279: (len(strip),) * count,
    }  # fmt: skip
    tags |= {int(name[1:]): value for name, value in more.items()}
    after = 8 + 2 + 12 * len(tags) + 4
    values, entries = b"", b""
    tags[273] = (after + sum(4 * len(v) for v in tags.values() if len(v) > 1),) * count
    for tag in sorted(tags):
        packed = struct.pack(f"<{len(tags[tag])}I", *tags[tag])
        place = packed if len(packed) == 4 else struct.pack("<I", after + len(values))
        values += b"" if len(packed) == 4 else packed
        entries += struct.pack("<HHI", tag, 4, len(tags[tag])) + place
    return b"II*\0" + struct.pack("<IH", 8, len(tags)) + entries + bytes(4) + values + strip


def bmp(size: Size, bits: int, rle: bytes | None = None) -> bytes:
    width, height = size
    colors = bytes(range(0, 256, 1)) * 4 if bits <= 8 else b""
    colors = colors[: 4 << bits] if bits <= 8 else b""
    body = rle if rle is not None else bytes(-(-width * bits // 32) * 4 * height)
    offset = 54 + len(colors)
    head = struct.pack(
        "<IIIHHIIIIII", 40, width, height, 1, bits, rle is not None, len(body), 0, 0, 0, 0
    )
    return b"BM" + struct.pack("<IHHI", offset + len(body), 0, 0, offset) + head + colors + body


def saved(mode: str, size: Size, form: str, **options: object) -> bytes:
    file = io.BytesIO()
    if options.pop("turned", False):
        exif = Image.Exif()
        exif[0x0112] = 6
        options["exif"] = exif
    Image.new(mode, size).save(file, form, **options)
    return file.getvalue()


def many_scans(scans: int, size: Size = (1024, 1024)) -> bytes:
    """A progressive JPEG that repeats its last scan."""
    data = saved("L", size, "JPEG", progressive=True)
    last = data.rindex(b"\xff\xda")
    more = scans - data.count(b"\xff\xda")
    return data[:-2] + data[last:-2] * more + b"\xff\xd9"


def pictures(square: Size = SQUARE) -> Iterator[tuple[str, Make]]:
    """Names, and how to make each."""
    yield from _pngs(square)
    yield from _jpegs(square)
    yield from _tiffs(square)
    yield from _others(square)


def _pngs(square: Size) -> Iterator[tuple[str, Make]]:
    pixels = square[0] * square[1]
    long = min(pixels, 200_000)
    shapes = {"": square, " wide": (long, pixels // long), " tall": (pixels // long, long)}
    shapes |= {" 1 high": (long, 1), " 1 wide": (1, long)}
    kinds = {"gray": 0, "RGB": 2, "gray alpha": 4, "RGBA": 6}
    for (name, kind), depth, (shape, size) in itertools.product(
        kinds.items(), (8, 16), shapes.items()
    ):
        if not shape or (kind, depth) in {(0, 8), (0, 16), (6, 8)}:
            yield f"PNG {name} {depth}{shape}", lambda s=size, d=depth, k=kind: png(s, d, k)
    for depth in (1, 2, 4):
        yield f"PNG gray {depth}", lambda d=depth: png(square, d, 0)
        yield f"PNG gray {depth} key", lambda d=depth: png(square, d, 0, b"tRNS\0\0")
    palette = b"PLTE" + bytes(range(256)) * 3
    yield "PNG palette", lambda: png(square, 8, 3, palette)
    yield "PNG palette alpha", lambda: png(square, 8, 3, palette, b"tRNS" + bytes(256))
    yield "PNG gray 16 key", lambda: png(square, 16, 0, b"tRNS\0\0")
    yield "PNG RGB 8 key", lambda: png(square, 8, 2, b"tRNS" + bytes(6))
    yield "PNG RGB 16 key", lambda: png(square, 16, 2, b"tRNS" + bytes(6))
    yield "PNG RGBA 8 interlaced", lambda: png(square, 8, 6, interlaced=True)
    yield "PNG RGBA 16 interlaced", lambda: png(square, 16, 6, interlaced=True)
    yield "PNG gray 16 interlaced", lambda: png(square, 16, 0, interlaced=True)
    turned = Image.Exif()
    turned[0x0112] = 6
    exif = b"eXIf" + turned.tobytes()[6:]
    yield "PNG RGBA 8 turned", lambda: png(square, 8, 6, exif)
    yield "PNG gray 16 turned", lambda: png(square, 16, 0, exif)
    animated = b"acTL" + struct.pack(">II", 1000, 0)
    control = b"fcTL" + struct.pack(">IIIIIHHBB", 0, *square, 0, 0, 1, 1, 1, 1)
    yield "PNG RGBA 8 animated", lambda: png(square, 8, 6, animated, control)


def _jpegs(square: Size) -> Iterator[tuple[str, Make]]:
    long = min(square[0] * square[1], 65_500)
    for mode, progressive in itertools.product(("L", "RGB", "CMYK"), (False, True)):
        for shape, size in {"": square, " 1 high": (long, 1), " 1 wide": (1, long)}.items():
            yield (
                f"JPEG {mode}{' progressive' * progressive}{shape}",
                lambda m=mode, p=progressive, s=size: saved(
                    m, s, "JPEG", progressive=p, subsampling=0, quality=10
                ),
            )
    yield "JPEG RGB 420", lambda: saved("RGB", square, "JPEG", subsampling=2)
    for mode in ("RGB", "CMYK"):
        yield (
            f"JPEG {mode} progressive turned",
            lambda m=mode: saved(
                m, square, "JPEG", progressive=True, subsampling=0, quality=10, turned=True
            ),
        )


def _tiffs(square: Size) -> Iterator[tuple[str, Make]]:
    kinds = {
        "1": ((1,), 1), "gray 8": ((8,), 1), "gray 16": ((16,), 1), "gray 16 white is 0": ((16,), 0),
        "gray 12": ((12,), 1), "gray 32": ((32,), 1), "RGB 8": ((8,) * 3, 2), "RGB 16": ((16,) * 3, 2),
        "CMYK 8": ((8,) * 4, 5), "CMYK 16": ((16,) * 4, 5), "LAB": ((8,) * 3, 8), "YCbCr": ((8,) * 3, 6),
    }  # fmt: skip
    for (name, (bits, photometric)), rows in itertools.product(kinds.items(), (1, None)):
        size = square if rows else _largest_strip(square, sum(bits) // 8)
        yield (
            f"TIFF {name} {'strips' if rows else 'one strip'}",
            lambda s=size, b=bits, p=photometric, r=rows: tiff(s, b, p, r),
        )
    more: dict[str, tuple[tuple[int, ...], int, dict[str, tuple[int, ...]]]] = {
        "RGBA 8": ((8,) * 4, 2, {"t338": (2,)}), "RGBA 16": ((16,) * 4, 2, {"t338": (2,)}),
        "gray alpha": ((8,) * 2, 1, {"t338": (2,)}), "float": ((32,), 1, {"t339": (3,)}),
        "RGBA 8 turned": ((8,) * 4, 2, {"t274": (6,), "t338": (2,)}),
    }  # fmt: skip
    for (name, (bits, photometric, tags)), rows in itertools.product(more.items(), (1, None)):
        size = square if rows else _largest_strip(square, sum(bits) // 8 + 4 * ("t274" in tags))
        yield (
            f"TIFF {name} {'strips' if rows else 'one strip'}",
            lambda s=size, b=bits, p=photometric, r=rows, t=tags: tiff(s, b, p, r, **t),
        )
    for mode, compression in {
        "1": "group4", "L": "tiff_lzw", "P": "packbits", "RGB": "jpeg", "RGBA": "tiff_lzw",
        "CMYK": "tiff_lzw", "YCbCr": "jpeg", "LA": "tiff_lzw", "PA": "tiff_lzw", "RGBX": "tiff_lzw",
    }.items():  # fmt: skip
        yield (
            f"TIFF {mode} {compression}",
            lambda m=mode, c=compression: saved(m, square, "TIFF", compression=c),
        )


def _largest_strip(square: Size, each: int) -> Size:
    """Of so many bytes for a pixel."""
    return LARGEST.get(f"one strip of {each} bytes", square) if square == SQUARE else square


def _others(square: Size) -> Iterator[tuple[str, Make]]:
    yield "GIF", lambda: saved("P", square, "GIF")
    yield "GIF key", lambda: saved("P", square, "GIF", transparency=0)
    yield "GIF disposed", lambda: saved("P", square, "GIF", transparency=0, disposal=2)
    webp = LARGEST["WEBP"] if square == SQUARE else square
    slow = LARGEST["slow"] if square == SQUARE else square
    for mode, lossless in itertools.product(("RGB", "RGBA"), (True, False)):
        yield (
            f"WEBP {mode} {'lossless' if lossless else 'lossy'}",
            lambda m=mode, exact=lossless: saved(
                m, webp, "WEBP", lossless=exact, method=0, quality=0
            ),
        )
    for bits in (1, 4, 8):
        yield f"BMP {bits}", lambda b=bits: bmp(square, b)
    width, height = square
    yield "BMP 24", lambda: bmp((width, height // 3), 24)
    yield "BMP 32", lambda: bmp((width, height // 4), 32)
    line = b"\xff\1" * -(-slow[0] // 255) + b"\0\0"
    yield "BMP RLE", lambda: bmp(slow, 8, line * slow[1])
    half = slow[0] // 2, slow[1] // 2
    yield "PPM plain", lambda: b"P2 %d %d 255\n" % half + b"9 " * (half[0] * half[1])
    yield "PPM gray to 254", lambda: b"P5 %d %d 254\n" % square + bytes(width * height)
    odd = (width, height // 2)
    yield "PPM gray to 1000", lambda: b"P5 %d %d 1000\n" % odd + bytes(2 * odd[0] * odd[1])
    yield "PPM bits", lambda: b"P4 %d %d\n" % square + bytes(-(-width // 8) * height)
    yield "PPM gray", lambda: b"P5 %d %d 255\n" % square + bytes(width * height)
    yield "PPM gray 16", lambda: b"P5 %d %d 65535\n" % (width, height // 2) + bytes(width * height)
    yield "PPM RGB", lambda: b"P6 %d %d 255\n" % (width, height // 3) + bytes(width * height)
