"""Omniglot: 1,623 characters x 4 rotations = 6,492 classes of 20 drawings, 28x28 (Appendix A)."""

import hashlib
import io
import zipfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

import numpy as np
import pooch
from numpy.typing import NDArray
from PIL import Image
from PIL.PngImagePlugin import PngImageFile

from semishot.data.framing import Ink
from semishot.data.image_sources import (
    ImageSource,
    WholeFile,
    ZipMember,
    is_hidden,
    read_bytes,
    walk,
)
from semishot.data.pool import SPLITS, ImageClass, ImagePool, Split, save_pool
from semishot.data.settings import Reduction, Rotations, preparation
from semishot.errors import InputError, reason_of
from semishot.system.files import reading
from semishot.system.progress import track

BASE_URL = "https://raw.githubusercontent.com/brendenlake/omniglot/master/python/"
ARCHIVES = {
    "images_background.zip": "md5:68d2efa1b9178cc56df9314c21c6e718",
    "images_evaluation.zip": "md5:6b91aef0f799c5bb55b94e3f2daec811",
}
ACCEPTED = (
    f"{' and '.join(ARCHIVES)} from https://github.com/brendenlake/omniglot (folder python/), or pass "
    "--download"
)
PUBLISHED_PIXELS = "3cd5d5800c2751294591100b93dddb2cb6f5fea9503d6fb2e279ee06d019163d"
"""The digest that `decode` computes from the published archives, however they are zipped."""
IDENTICAL, DIFFERENT = "the published Omniglot, complete", "differs from the published Omniglot"
REMEDY = "get the two archives again, or pass --download"

FRAMING = Ink
DRAWN, SIDE = 105, 28  # pixels along a side, as published and as prepared
DRAWINGS = 20  # per character
ROTATIONS = (0, 90, 180, 270)  # degrees, counter-clockwise
PREPARED: dict[Reduction, str] = {
    "antialiased": "Pillow bicubic",
    "cubic": "cubic as OpenCV's",
}
CURVE, FIXED = -0.75, 2048
"""The parameter of OpenCV's cubic kernel, where Pillow's has -0.5; OpenCV rounds weights to 1/2048."""

# Appendix A with the number of characters of each alphabet. Gurmukhi gives its first 41 characters
# to train and its last 4 to test. The paper misspells Mkhedruli_(Georgian).
# fmt: off
CHARACTERS: dict[Split, dict[str, int]] = {
    "train": {
        "Alphabet_of_the_Magi": 20, "Angelic": 20, "Anglo-Saxon_Futhorc": 29, "Arcadian": 26,
        "Asomtavruli_(Georgian)": 40, "Atemayar_Qelisayer": 26, "Atlantean": 26, "Aurek-Besh": 26,
        "Avesta": 26, "Balinese": 24, "Blackfoot_(Canadian_Aboriginal_Syllabics)": 14,
        "Braille": 26, "Burmese_(Myanmar)": 34, "Cyrillic": 33, "Futurama": 26, "Ge_ez": 26,
        "Glagolitic": 45, "Grantha": 43, "Greek": 24, "Gujarati": 48, "Gurmukhi": 41,
        "Inuktitut_(Canadian_Aboriginal_Syllabics)": 16, "Japanese_(hiragana)": 52,
        "Japanese_(katakana)": 47, "Korean": 40, "Latin": 26, "Malay_(Jawi_-_Arabic)": 40,
        "N_Ko": 33, "Ojibwe_(Canadian_Aboriginal_Syllabics)": 14, "Sanskrit": 42,
        "Syriac_(Estrangelo)": 23, "Tagalog": 17, "Tifinagh": 55,
    },
    "val": {
        "Armenian": 41, "Bengali": 46, "Early_Aramaic": 22, "Hebrew": 22,
        "Mkhedruli_(Georgian)": 41,
    },
    "test": {
        "Gurmukhi": 4, "Kannada": 41, "Keble": 26, "Malayalam": 47, "Manipuri": 40, "Mongolian": 30,
        "Old_Church_Slavonic_(Cyrillic)": 45, "Oriya": 46, "Sylheti": 28, "Syriac_(Serto)": 23,
        "Tengwar": 25, "Tibetan": 42, "ULOG": 26,
    },
}
# fmt: on


Drawing = tuple[tuple[str, ...], ImageSource]
"""Alphabet, character and file name; and where it is."""


def prepare(
    folder: Path,
    source: Path,
    reduction: Reduction = "antialiased",
    rotations: Rotations = "exact",
) -> ImagePool:
    """Build the pool in `folder` from the two archives, or their extracted folders, in `source`."""
    drawings = list_drawings(source)
    check_complete(drawings, source)
    upright, pixels = decode(drawings, reduction)
    images = rotations_as_classes(upright, rotations).reshape(-1, 1, SIDE, SIDE)
    about = {
        "source": "https://github.com/brendenlake/omniglot",
        "pixels": pixels,
        "variant": IDENTICAL if pixels == PUBLISHED_PIXELS else DIFFERENT,
        "prepared": f"28x28 {PREPARED[reduction]}, ink 255 on 0, {rotations} rotations as classes",
    }
    if unusual := preparation("omniglot", reduction=reduction, rotations=rotations):
        about["preparation"] = unusual
    return save_pool(folder, "omniglot", images, classes(), about)


def download(folder: Path) -> Path:
    """Fetch the two archives into `folder`, unless they are there already."""
    http = pooch.HTTPDownloader(stream=False)  # a stream would leave its socket open after a 404
    for name, known_hash in ARCHIVES.items():
        try:
            pooch.retrieve(BASE_URL + name, known_hash, fname=name, path=folder, downloader=http)
        except (OSError, ValueError) as error:  # network and disk; checksum
            raise InputError(
                f"cannot download {BASE_URL + name} ({reason_of(error)}); try again later, "
                "or get the file elsewhere and pass --source FOLDER"
            ) from error
    return folder


def describe(pool: ImagePool) -> list[str]:
    """What the pool holds."""
    characters = len(pool.classes) // len(ROTATIONS)
    alphabets = len({c.group for c in pool.classes})
    per_split = "/".join(f"{sum(c.split == s for c in pool.classes):,}" for s in SPLITS)
    return [
        f"{characters:,} characters in {alphabets} alphabets, {DRAWINGS} drawings each",
        f"{per_split} {'/'.join(SPLITS)} classes with rotations",
        str(pool.about["variant"]),
        *([str(pool.about["prepared"])] if "preparation" in pool.about else []),
    ]


def split_of_characters() -> dict[tuple[str, str], Split]:
    """(alphabet, character) -> split, sorted; an alphabet in two splits is cut in their order."""
    assigned: dict[tuple[str, str], Split] = {}
    given: Counter[str] = Counter()
    for split in SPLITS:
        for alphabet, count in CHARACTERS[split].items():
            for _ in range(count):
                given[alphabet] += 1
                assigned[alphabet, f"character{given[alphabet]:02d}"] = split
    return dict(sorted(assigned.items()))


def classes() -> list[ImageClass]:
    """The classes in the order of their images: by alphabet, character, rotation."""
    rotated = [
        (f"{character}-rot{degrees:03d}", alphabet, split)
        for (alphabet, character), split in split_of_characters().items()
        for degrees in ROTATIONS
    ]
    return [ImageClass(*row, start=i * DRAWINGS, count=DRAWINGS) for i, row in enumerate(rotated)]


def list_drawings(source: Path) -> list[Drawing]:
    """Both halves' drawings, sorted; a zip is preferred to a folder."""
    drawings: list[Drawing] = []
    for archive in map(source.joinpath, ARCHIVES):
        if archive.is_file():
            with reading(archive, REMEDY), zipfile.ZipFile(archive) as opened:
                members = [(PurePosixPath(m.filename), m) for m in opened.infolist()]
            drawings += [
                (path.parts[-3:], ZipMember(str(archive), member.filename))
                for path, member in members
                if _is_drawing(path) and not member.is_dir()
            ]
        elif (tree := archive.with_suffix("")).is_dir():
            files = [entry.path for entry in walk(tree) if not entry.problem]
            drawings += [
                (path.parts[-3:], WholeFile(str(path)))
                for path in files
                if _is_drawing(PurePosixPath(path.relative_to(source)))
            ]
        else:
            raise InputError(f"no {archive.name} and no {archive.stem}/ in {source}; {REMEDY}")
    return sorted(drawings, key=lambda drawing: drawing[0])


def _is_drawing(path: PurePosixPath) -> bool:
    """Whether it is .../alphabet/character/drawing.png, and not hidden."""
    is_png = path.suffix.lower() == ".png"
    return len(path.parts) >= 3 and is_png and not is_hidden(*path.parts)


def check_complete(drawings: Sequence[Drawing], source: Path) -> None:
    """Raise unless these are exactly the characters of `CHARACTERS`, with all drawings."""
    count = Counter("/".join(key[:2]) for key, _ in drawings)
    characters = {"/".join(key) for key in split_of_characters()}
    for kind, given, known in (
        ("alphabet", {c.split("/")[0] for c in count}, {c.split("/")[0] for c in characters}),
        ("character", set(count), characters),
    ):
        if extra := given - known:
            raise InputError(f"unknown {kind} {min(extra)} in {source}: not Omniglot, remove it")
        if missing := known - given:
            raise InputError(f"no {kind} {min(missing)} in {source}; {REMEDY}")
    for name, have in count.items():
        if have != DRAWINGS:
            raise InputError(f"{have} drawings, not {DRAWINGS}, of {name} in {source}; {REMEDY}")


def decode(
    drawings: Sequence[Drawing], reduction: Reduction = "antialiased"
) -> tuple[NDArray[np.uint8], str]:
    """Ink (I, 28, 28) and one SHA-256 of all names and 105x105 pixels, in the order given."""
    ink = np.empty((len(drawings), SIDE, SIDE), np.uint8)
    pixels = hashlib.sha256()
    for i, (key, source) in enumerate(track(drawings, "reading Omniglot", len(drawings))):
        image = _grayscale(source)
        pixels.update("/".join(key).encode())
        pixels.update(image.tobytes())
        ink[i] = 255 - reduced(image, reduction)
    return ink, pixels.hexdigest()


def _grayscale(source: ImageSource) -> Image.Image:
    data = read_bytes(source)
    with reading(source.name, REMEDY):
        image = PngImageFile(io.BytesIO(data))  # reads the header only
        if image.size != (DRAWN, DRAWN):
            width, height = image.size
            raise InputError(f"{source.name} is {width}x{height}, not {DRAWN}x{DRAWN}; {REMEDY}")
        return image.convert("L")  # 1-bit becomes 0 and 255


def reduced(drawing: Image.Image, how: Reduction, side: int = SIDE) -> NDArray[np.uint8]:
    """(side, side): by Pillow's bicubic filter, widened with the scale, or by OpenCV's, which is not.

    OpenCV's has its bits for drawings in black and white, and is otherwise within one level of them.
    """
    if how == "antialiased":
        return np.asarray(drawing.resize((side, side), Image.Resampling.BICUBIC))
    rows, columns = _cubic_weights(drawing.height, side), _cubic_weights(drawing.width, side)
    exact = rows @ np.asarray(drawing, np.float64) @ columns.T
    return np.floor(exact + 0.5).clip(0, 255).astype(np.uint8)


def _cubic_weights(size: int, side: int) -> NDArray[np.float64]:
    """(side, size): OpenCV's weights of the 4 pixels around each point of the result, along an axis."""
    out = np.arange(side)
    center = (out + 0.5) * (size / side) - 0.5
    weights = np.zeros((side, size))
    for tap in (-1, 0, 1, 2):
        pixel = np.floor(center).astype(int) + tap
        distance = np.abs(center - pixel)
        near = ((CURVE + 2) * distance - (CURVE + 3)) * distance**2 + 1
        far = CURVE * (((distance - 5) * distance + 8) * distance - 4)
        kernel = np.where(distance <= 1, near, np.where(distance < 2, far, 0))
        share = np.rint(FIXED * kernel) / FIXED
        np.add.at(weights, (out, pixel.clip(0, size - 1)), share)  # the border is repeated
    return weights


def rotations_as_classes(upright: NDArray[np.uint8], how: Rotations = "exact") -> NDArray[np.uint8]:
    """(characters * 20, 28, 28) -> (characters, 4, 20, 28, 28), `exact` or as the authors' code has them.

    It warps each drawing four times by a quarter turn, about the point (14, 14) instead of the center (13.5,
    13.5): each time the drawing also moves down by a pixel, and the last row is lost.
    """
    drawn = upright.reshape(-1, DRAWINGS, SIDE, SIDE)
    turned = [drawn]
    for _ in ROTATIONS:
        turn = np.rot90(turned[-1], axes=(2, 3))
        if how == "warped":
            turn = np.pad(turn[..., :-1, :], [(0, 0), (0, 0), (1, 0), (0, 0)])
        turned.append(turn)
    return np.stack([turned[-1], *turned[1:-1]], axis=1)  # after four turns it is upright again
