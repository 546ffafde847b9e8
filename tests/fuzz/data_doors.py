"""The doors of data: pictures, zips, tars, pickles, CSV and the arrays of published data sets."""

import io
import pickle
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
from doors import MANY, Door
from mutations import odd_cells, odd_npy, odd_zip
from PIL import Image

from semishot.data import image_sources, safe_pickles
from semishot.data.decoding import decode, opened, quiet
from semishot.data.framing import Ink, Middle, is_drawing
from semishot.data.thumbnails import thumbnail
from semishot.datasets import mini_imagenet, omniglot, tiered_imagenet
from semishot.sorter.embedding import read_image
from semishot.sorter.feature_files import read_labels
from semishot.sorter.listing import from_table
from support.images import encoded
from support.own_images import MEMBERS, draw

WNID = "n01532829"
NAMES = [f"{WNID}{number:08}.jpg" for number in range(1, 4)]


@cache
def pictures() -> tuple[bytes, ...]:
    photo = draw("circle", 1, 40)
    turned = Image.Exif()
    turned[0x0112] = 6
    deep = Image.fromarray(np.arange(0, 65536, 64, dtype=np.uint16).reshape(32, 32))
    return (
        encoded(photo, "png"),
        encoded(photo.convert("P"), "png", transparency=0),
        encoded(photo.convert("1"), "png"),
        encoded(photo.convert("LA"), "png"),
        encoded(deep, "png"),
        encoded(deep, "tiff"),
        encoded(photo, "tiff", compression="tiff_lzw"),
        encoded(photo, "tiff", compression="jpeg"),
        encoded(photo, "jpeg", exif=turned),
        encoded(photo.convert("CMYK"), "jpeg"),
        encoded(photo, "gif"),
        encoded(photo, "bmp"),
        encoded(photo, "ppm"),
        encoded(photo, "webp"),
        encoded(photo, "webp", lossless=True),
    )


def look(data: bytes, folder: Path) -> None:
    path = folder / "picture"
    path.write_bytes(data)
    is_drawing(data, "it")
    decode(data, "it", 28)
    for framing in (Middle(32, 32, 0.875), Ink()):
        with quiet(), opened(read_image(path), "it") as image:
            framing(image)
    with quiet(), opened(data, "it") as image:
        thumbnail(image)


def mend_png(data: bytes) -> bytes:
    """The CRC of every chunk of a PNG."""
    if not data.startswith(b"\x89PNG\r\n\x1a\n"):
        return data
    place, held = 8, bytearray(data)
    while place + 12 <= len(held):
        (size,) = struct.unpack_from(">I", held, place)
        end = place + 8 + size
        if end + 4 > len(held):
            break
        struct.pack_into(">I", held, end, zlib.crc32(held[place + 4 : end]))
        place = end + 4
    return bytes(held)


@cache
def zips() -> tuple[bytes, ...]:
    made = []
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w", method) as opened_zip:
            for name, kind in zip(NAMES, MEMBERS, strict=True):
                opened_zip.writestr(f"images/{name}", encoded(draw(kind, 1, 30), "jpeg"))
        made.append(file.getvalue())
    return tuple(made)


def open_zip(data: bytes, folder: Path) -> None:
    image_sources._opened_zip.cache_clear()
    (folder / "images.zip").write_bytes(data)
    for source in mini_imagenet._in_zips(folder, {"train": {WNID: NAMES}}).values():
        mini_imagenet.read(source)


@cache
def drawings() -> tuple[bytes, ...]:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as opened_zip:
        for number in range(3):
            picture = encoded(draw("cross", number, 105).convert("1"), "png")
            opened_zip.writestr(f"images_background/Greek/character01/{number}.png", picture)
    return (file.getvalue(),)


def open_drawings(data: bytes, folder: Path) -> None:
    for name in omniglot.ARCHIVES:
        (folder / name).write_bytes(data)
    image_sources._opened_zip.cache_clear()
    drawings = omniglot.list_drawings(folder)
    omniglot.decode(drawings[:MANY])
    omniglot.check_complete(drawings, folder)


@cache
def tars() -> tuple[bytes, ...]:
    made = []
    for kind in (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT):
        inner = tar(
            {f"{WNID}_{n}.JPEG": encoded(draw("circle", n, 20), "jpeg") for n in range(3)}, kind
        )
        made.append(tar({f"{WNID}.tar": inner}, kind))
    long = tar({"x" * 180 + f"/{WNID}.tar": b""}, tarfile.PAX_FORMAT)
    return (*made, long)


def tar(files: dict[str, bytes], kind: int) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=kind) as opened_tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            opened_tar.addfile(member, io.BytesIO(data))
    return file.getvalue()


def open_tar(data: bytes, folder: Path) -> None:
    (folder / image_sources.ILSVRC_TAR).write_bytes(data)
    found = image_sources.ilsvrc_files(folder, [WNID])
    for source in [place for places in found.values() for place in places][:MANY]:
        tiered_imagenet.read(source)


def mend_tar(data: bytes) -> bytes:
    """The checksum of whatever looks like a header of a tar."""
    held = bytearray(data)
    for place in range(0, len(held) - 511, 512):
        if held[place + 257 : place + 262] == b"ustar":
            held[place + 148 : place + 156] = b" " * 8
            held[place + 148 : place + 156] = b"%06o\0 " % sum(held[place : place + 512])
    return bytes(held)


@cache
def plain_pickles() -> tuple[bytes, ...]:
    images = np.zeros((2, 84, 84, 3), np.uint8)
    held = {"image_data": images, "class_dict": {"n01": [0], "n02": [1]}}
    labels = {"label_specific": [0, 1, 1], "label_specific_str": ["dog", b"cat"]}
    plain = {"a": (1, 2.5, None, {True}, frozenset([b"x"])), "b": [np.float32(2), np.arange(3)]}
    return tuple(
        pickle.dumps(value, protocol) for value in (plain, labels, held) for protocol in range(6)
    )


def open_pickle(data: bytes, folder: Path) -> None:
    path = folder / "it.pkl"
    path.write_bytes(data)
    safe_pickles.load(path)
    for read in (mini_imagenet._read_pickle, tiered_imagenet._labels):
        try:
            read(path)
        except ValueError as error:  # most are not of this kind
            if "not image_data" not in str(error) and "not label_specific" not in str(error):
                raise


@cache
def picture_pickles() -> tuple[bytes, ...]:
    pngs = [encoded(draw(kind, 1, 20), "png") for kind in MEMBERS]
    texts = [png.decode("latin1") for png in pngs]
    return tuple(pickle.dumps(v, p) for v in (pngs, texts) for p in range(1, 6))


def open_picture_pickle(data: bytes, folder: Path) -> None:
    (folder / "train_images_png.pkl").write_bytes(data)
    for source in tiered_imagenet._images(folder, "train")[:MANY]:
        tiered_imagenet.read(source)


@cache
def arrays() -> tuple[bytes, ...]:
    file = io.BytesIO()
    np.savez(file, images=np.zeros((2, 84, 84, 3), np.uint8))
    return (file.getvalue(),)


def open_array(data: bytes, folder: Path) -> None:
    (folder / "train_images.npz").write_bytes(data)
    for source in tiered_imagenet._images(folder, "train")[:MANY]:
        tiered_imagenet.read(source)


def tables() -> Sequence[bytes]:
    rows = "".join(f"{name},{WNID}\n" for name in NAMES)
    return (
        f"filename,label\n{rows}".encode(),
        b'path,label\na.png,cat\nb.png,\n"c,\n.png",dog\n',
        "\ufeffpath,label,more\n../a.png,=1+1,x\n/etc/passwd,../cat\n".encode(),
        b"label\ncat\n\ndog\n",
    )


def open_table(data: bytes, folder: Path) -> None:
    path = folder / "table.csv"
    path.write_bytes(data)
    for read in (mini_imagenet._read_csv, from_table, lambda table: read_labels(table, 3)):
        try:
            read(path)
        except ValueError as error:
            if "column" not in str(error):
                raise


DATA_DOORS = [
    Door("pictures", pictures, look, mend=mend_png),
    Door("zips", zips, open_zip, odd_zip),
    Door("omniglot zips", drawings, open_drawings, odd_zip),
    Door("tars", tars, open_tar, mend=mend_tar),
    Door("pickles", plain_pickles, open_pickle),
    Door("pickled pictures", picture_pickles, open_picture_pickle),
    Door("npz arrays", arrays, open_array, odd_npy),
    Door("csv tables", tables, open_table, odd_cells),
]
