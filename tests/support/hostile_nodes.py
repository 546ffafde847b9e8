"""Hostile nodes: what can stand where a command expects a file or a folder of its user's, or of its own.

A node is laid by `lay(place, scene)`: whatever stood at `place` is gone then, except for nodes that only
add an entry to a folder. What they lead to lies in `scene.foreign`, which no command may change.
"""

import os
import shutil
import socket
import stat
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from support.hostile_contents import (
    bomb,
    content_for,
    garbage,
    large_deep_picture,
    many_lines,
    picture,
)

DEMONSTRATION = 42
"""The number of no driver: opening such a device fails, whatever the machine has."""
HARD_LINKS = 20_000
CROWD = 1_000
DEPTH = 900
TERABYTE = 2**40


@dataclass(frozen=True)
class Scene:
    """Where a node is laid."""

    folder: Path
    """Of the case."""
    foreign: Path
    """Below it, what links lead to."""
    shared: Path
    """What is made once, outside of the case: a file with many names."""


Lay = Callable[[Path, Scene], object]


@dataclass(frozen=True)
class Node:
    lay: Lay
    on: str = "any"
    """file, folder, or any: where what is expected is one of these."""
    powers: bool = False
    """The case must run with root's powers to reach what is behind the node."""
    root_only: bool = False
    """Only root can lay it."""
    adds: bool = False
    """It adds an entry to the folder, and is no node in its place."""
    grows: bool = False


def fill_foreign(foreign: Path) -> None:
    """What links lead to; none of it is anybody's to write."""
    (foreign / "folder").mkdir(parents=True)
    (foreign / "folder" / "inside.txt").write_text("not yours\n")
    (foreign / "file").write_text("not yours either\n")
    os.mkfifo(foreign / "fifo")


def clear(place: Path) -> None:
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)


def instead(lay: Lay) -> Lay:
    """Lay it where something stood."""

    def cleared(place: Path, scene: Scene) -> None:
        clear(place)
        place.parent.mkdir(parents=True, exist_ok=True)
        lay(place, scene)

    return cleared


def link(target: str) -> Lay:
    """With CASE for the folder of the case, FOREIGN for what is not ours."""

    def lay(place: Path, scene: Scene) -> None:
        named = target.replace("FOREIGN", str(scene.foreign)).replace("CASE", str(scene.folder))
        place.symlink_to(named)

    return instead(lay)


def link_to_itself(place: Path, scene: Scene) -> None:
    place.symlink_to(place.name)


def link_to_the_same(place: Path, scene: Scene) -> None:
    """A link where the file itself stood: right in content, but what is written here goes there."""
    if not os.path.lexists(place):
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content_for(place))
    moved = scene.foreign / f"moved-{len(place.name)}{place.suffix}"
    place.rename(moved)
    place.symlink_to(moved)


def device(kind: int, major: int, minor: int) -> Lay:
    return instead(lambda place, _: os.mknod(place, kind | 0o666, os.makedev(major, minor)))


def bound_socket(place: Path, scene: Scene) -> None:
    """By a short name: the name of a socket has at most 107 bytes."""
    here = os.open(place.parent, os.O_RDONLY)
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(f"/proc/self/fd/{here}/{place.name}")
    finally:
        os.close(here)


def folder_with_a_file(place: Path, scene: Scene) -> None:
    place.mkdir()
    (place / "foreign.txt").write_text("not yours\n")


def deep(place: Path, scene: Scene) -> None:
    place.mkdir()
    here = os.open(place, os.O_RDONLY)
    for _ in range(DEPTH):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)


def sparse(place: Path, scene: Scene) -> None:
    with place.open("wb") as file:
        file.truncate(TERABYTE)


def kept(place: Path) -> bytes:
    """What stands there now, or what could."""
    if place.is_file() and not place.is_symlink():
        return place.read_bytes()
    return content_for(place)


def with_content(change: Callable[[bytes, Path], bytes]) -> Lay:
    def lay(place: Path, scene: Scene) -> None:
        content = change(kept(place), place)
        clear(place)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)

    return lay


def unreadable(place: Path, scene: Scene) -> None:
    if not os.path.lexists(place):
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content_for(place))
    place.chmod(0)


def unwritable(place: Path, scene: Scene) -> None:
    if not os.path.lexists(place):
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content_for(place))
    place.chmod(0o555 if place.is_dir() else 0o444)


def immutable(place: Path, scene: Scene) -> None:
    if not os.path.lexists(place):
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content_for(place))
    subprocess.run(["chattr", "+i", place], check=True, capture_output=True)


def mutable_again(place: Path) -> None:
    if os.path.lexists(place) and not place.is_symlink():
        subprocess.run(["chattr", "-i", place], check=False, capture_output=True)


def hard_links(place: Path, scene: Scene) -> None:
    """One more name of a file that has 20,000."""
    first = scene.shared / "many-names" / "0"
    if not first.exists():
        first.parent.mkdir(parents=True)
        first.write_bytes(picture())
        for number in range(1, HARD_LINKS):
            os.link(first, first.with_name(str(number)))
    os.link(first, place)


def crowd(place: Path, scene: Scene) -> None:
    """A folder of a thousand names for one picture."""
    place.mkdir()
    (place / "0.png").write_bytes(picture())
    for number in range(1, CROWD):
        os.link(place / "0.png", place / f"{number}.png")


def entry(name: bytes) -> Lay:
    """Two more entries: a whole picture, oddly named, and one in a folder as odd."""

    def lay(place: Path, scene: Scene) -> None:
        place.mkdir(parents=True, exist_ok=True)
        (place / os.fsdecode((name + b".png")[-255:])).write_bytes(picture())
        inside = place / os.fsdecode(name[:255])
        inside.mkdir()
        (inside / "1.png").write_bytes(picture())

    return lay


NODES: dict[str, Node] = {
    "fifo": Node(instead(lambda place, _: os.mkfifo(place))),
    "socket": Node(instead(bound_socket)),
    "char-device": Node(device(stat.S_IFCHR, 1, 5), root_only=True),  # zeros without end
    "no-device": Node(device(stat.S_IFCHR, DEMONSTRATION, 0), root_only=True),
    "block-device": Node(device(stat.S_IFBLK, DEMONSTRATION, 0), root_only=True),
    "link-file": Node(link("FOREIGN/file")),
    "link-same": Node(link_to_the_same),
    "link-folder": Node(link("FOREIGN/folder")),
    "link-itself": Node(instead(link_to_itself)),
    "link-nothing": Node(link("FOREIGN/nothing")),
    "link-zero": Node(link("/dev/zero")),
    "link-full": Node(link("/dev/full")),
    "link-kmsg": Node(link("/proc/kmsg"), powers=True, root_only=True),
    "link-mem": Node(link("/proc/self/mem")),
    "link-fifo": Node(link("FOREIGN/fifo")),
    "link-parent": Node(link("CASE")),
    "folder": Node(instead(folder_with_a_file)),
    "file": Node(instead(lambda place, _: place.write_text("mine\n"))),
    "nothing": Node(lambda place, _: clear(place)),
    "deep": Node(instead(deep), on="folder"),
    "crowd": Node(instead(crowd), on="folder"),
    "empty": Node(instead(lambda place, _: place.touch()), on="file"),
    "sparse": Node(instead(sparse), on="file"),
    "garbage": Node(with_content(garbage), on="file"),
    "truncated": Node(with_content(lambda content, _: content[: len(content) // 2]), on="file"),
    "bomb": Node(with_content(bomb), on="file"),
    "long": Node(with_content(many_lines), on="file"),
    "large": Node(with_content(large_deep_picture), on="picture"),
    "hard-links": Node(instead(hard_links), on="file"),
    "grows": Node(with_content(lambda content, _: content), on="file", grows=True),
    "unreadable": Node(unreadable),
    "unwritable": Node(unwritable),
    "immutable": Node(immutable, root_only=True),
    "name-newline": Node(entry(b"a\nb"), on="folder", adds=True),
    "name-not-utf8": Node(entry(b"\xff\xfe\xe9"), on="folder", adds=True),
    "name-255": Node(entry(b"n" * 255), on="folder", adds=True),
    "name-dash": Node(entry(b"-rf"), on="folder", adds=True),
    "name-dots": Node(entry(b"..."), on="folder", adds=True),
    "name-escape": Node(entry(b"\x1b[2J"), on="folder", adds=True),
}
