"""One open zip serves every thread; every file below a folder once, in the same order anywhere."""

import os
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from semishot.data.image_sources import ZipMember, read_bytes, walk


def test_threads_read_the_right_bytes_of_a_zip(tmp_path):
    path = tmp_path / "images.zip"
    contents = {f"{n}.png": bytes([n % 256, n // 256]) * (4000 + n) for n in range(400)}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in contents.items():
            archive.writestr(name, content)
    with ThreadPoolExecutor(16) as threads:
        found = list(threads.map(lambda name: read_bytes(ZipMember(str(path), name)), contents))
    assert found == list(contents.values())


def touch(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x")
    return folder


def found(root: Path, **options: object) -> list[str]:
    """Paths below `root`, those with a problem followed by it."""
    entries = walk(root, **options)
    return [f"{e.path.relative_to(root)} {e.problem}".strip() for e in entries]


def test_files_are_sorted_and_hidden_ones_left_out_unless_asked_for(tmp_path):
    touch(tmp_path, "b/2", "b/1", "a", "c", ".git/x", "b/.DS_Store", "__MACOSX/y")
    assert found(tmp_path) == ["a", "b/1", "b/2", "c"]
    every = list(walk(tmp_path, hidden=True))
    assert {str(e.path.relative_to(tmp_path)): e.hidden for e in every} == {
        **dict.fromkeys(["a", "b/1", "b/2", "c"], False),
        **dict.fromkeys([".git/x", "b/.DS_Store", "__MACOSX/y"], True),
    }


def test_links_are_followed_last_and_no_folder_twice(tmp_path):
    touch(tmp_path, "pile/b/1", "elsewhere/2")
    pile = tmp_path / "pile"
    (pile / "a").symlink_to(pile / "b")
    (pile / "b/up").symlink_to(pile)
    (pile / "c").symlink_to(tmp_path / "elsewhere")
    first, *rest = found(pile)
    assert first == "b/1"
    assert set(rest) == {f"a links back to {pile / 'b'}", f"b/up links back to {pile}", "c/2"}


def test_what_is_not_walked_has_its_reason(tmp_path, monkeypatch):
    touch(tmp_path, "out/3", "locked/4")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    scandir = os.scandir

    def denied(path):
        if Path(path).name == "locked":
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", denied)
    assert found(tmp_path, leave_out={(tmp_path / "out").resolve()}) == [
        "locked cannot be listed (Permission denied)",
        "pipe not a regular file",
        "gone cannot be opened (No such file or directory)",
    ]
