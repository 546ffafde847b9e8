"""The pictures that the page of a pile shows large: files in OUT/pictures, and links to the originals."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from semishot.data.decoding import opened
from semishot.data.thumbnails import thumbnail
from semishot.errors import InputError
from semishot.sorter.embedding import read_image
from semishot.sorter.listing import Item
from semishot.sorter.out_folder import PICTURES
from semishot.system.files import write_whole

__all__ = ["LargePictures", "link_to"]

SIDE, QUALITY = 1024, 82
"""Pixels of the longer side, and of JPEG."""
MOST, MOST_BYTES = 500, 100_000_000
"""Of pictures in OUT: the page shows the originals of the others, as far as a browser can."""
OUR_NAME = re.compile(r"[0-9a-f]{32}\.jpg")


@dataclass
class LargePictures:
    """Downsized copies of the originals in a folder beside the page, each named by its content."""

    out: Path
    digests: Mapping[Item, bytes]
    used: dict[str, int] = field(default_factory=dict)
    """The name of each picture of this page, and its bytes."""

    def source(self, item: Item) -> str:
        """The relative address of the picture; makes the picture if needed. Empty without a file."""
        digest = self.digests.get(item)
        if not digest or item.path is None:
            return ""
        name = f"{digest.hex()[:32]}.jpg"
        if name not in self.used:
            if len(self.used) >= MOST or sum(self.used.values()) >= MOST_BYTES:
                return ""
            path = self.out / PICTURES / name
            if not path.is_file() and not _write(item.path, path):
                return ""
            self.used[name] = path.stat().st_size
        return f"{PICTURES}/{name}"

    def remove_others(self) -> None:
        """Remove pictures of earlier pages; files of other names stay."""
        folder = self.out / PICTURES
        if folder.is_dir():
            for path in sorted(folder.iterdir()):
                if OUR_NAME.fullmatch(path.name) and path.name not in self.used:
                    path.unlink()


def _write(original: Path, path: Path) -> bool:
    """Whether the picture could be made; the original may have changed meanwhile."""
    try:
        with opened(read_image(original), "it") as image:
            picture = thumbnail(image, SIDE, QUALITY)
    except InputError:
        return False
    write_whole(path, picture)
    return True


def link_to(original: Path, out: Path) -> str:
    """The relative address of a file, as a page in `out` links to it."""
    relative = os.path.relpath(original.absolute(), out.absolute())
    return quote(os.fsencode(relative.replace(os.sep, "/")))
