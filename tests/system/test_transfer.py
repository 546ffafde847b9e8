"""Moving and copying single files: nothing is overwritten, and the last name is never removed."""

import errno
import os
import tempfile
from pathlib import Path

import pytest

from semishot.errors import InputError
from semishot.system import transfer
from semishot.system.transfer import copy_file, digest_of, drop, is_file, move_file

SHARED_MEMORY = Path("/dev/shm")


@pytest.fixture
def elsewhere(tmp_path):
    """A folder on another device."""
    if not SHARED_MEMORY.is_dir() or SHARED_MEMORY.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is no second file system: /dev/shm and the temporary folder are one")
    with tempfile.TemporaryDirectory(dir=SHARED_MEMORY) as folder:
        yield Path(folder)


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "a.jpg"
    path.write_bytes(b"content" * 1000)
    path.chmod(0o640)
    os.utime(path, ns=(1_000_000_000_000_000_007, 1_000_000_000_000_000_009))
    return path


def move(source, target):
    move_file(source, target, target.with_name(".part"), digest_of(source))


def test_across_devices_mode_and_times_are_kept(source, elsewhere):
    about, content = source.stat(), source.read_bytes()
    target = elsewhere / "b.jpg"
    move(source, target)
    found = target.stat()
    assert (found.st_mode, found.st_mtime_ns) == (about.st_mode, about.st_mtime_ns)
    assert target.read_bytes() == content
    assert not source.exists()
    assert [path.name for path in elsewhere.iterdir()] == ["b.jpg"]


def test_where_files_have_one_name_only_a_file_is_renamed(source, tmp_path, monkeypatch):
    """As on a memory card, or where a file of another user may not be linked to."""

    def refuse(*given, **options):
        raise PermissionError(errno.EPERM, "not permitted")

    monkeypatch.setattr(os, "link", refuse)
    number = source.stat().st_ino
    move(source, tmp_path / "b.jpg")
    assert (tmp_path / "b.jpg").stat().st_ino == number
    (tmp_path / "c.jpg").write_text("mine")
    with pytest.raises(FileExistsError):
        move(tmp_path / "b.jpg", tmp_path / "c.jpg")
    assert (tmp_path / "c.jpg").read_text() == "mine"


@pytest.mark.parametrize("across", [False, True])
def test_a_file_that_cannot_be_deleted_has_one_name_afterwards(
    source, tmp_path, monkeypatch, across, request
):
    folder = request.getfixturevalue("elsewhere") if across else tmp_path
    unlink = os.unlink

    def refuse(path, **options):
        if Path(path) == source:
            raise PermissionError(errno.EACCES, "not permitted")
        unlink(path, **options)

    monkeypatch.setattr(os, "unlink", refuse)
    with pytest.raises(PermissionError):
        move(source, folder / "b.jpg")
    assert source.stat().st_nlink == 1
    assert {path.name for path in folder.iterdir()} <= {"a.jpg"}


@pytest.mark.parametrize("moment", ["link", "unlink"])
def test_a_file_that_is_replaced_meanwhile_is_not_lost(source, tmp_path, monkeypatch, moment):
    content, call = source.read_bytes(), getattr(os, moment)
    (tmp_path / "new").write_text("new")

    def late(path, *given, **options):
        if Path(path) == source and (tmp_path / "new").exists():
            (tmp_path / "new").rename(source)
        call(path, *given, **options)

    monkeypatch.setattr(os, moment, late)
    if moment == "link":
        with pytest.raises(InputError, match="has changed since it was read"):
            move(source, tmp_path / "b.jpg")
        assert source.read_text() == "new"
        assert not (tmp_path / "b.jpg").exists()
        return
    lstat = os.lstat

    def looked(path, **options):  # replaced as soon as it has a second name
        if Path(path) == source and (tmp_path / "b.jpg").exists() and (tmp_path / "new").exists():
            (tmp_path / "new").rename(source)
        return lstat(path, **options)

    monkeypatch.setattr(os, "lstat", looked)
    move(source, tmp_path / "b.jpg")
    assert source.read_text() == "new"
    assert (tmp_path / "b.jpg").read_bytes() == content


def test_a_file_that_is_written_to_while_it_is_copied_stays(source, elsewhere, monkeypatch):
    monkeypatch.setattr(transfer.shutil, "copystat", lambda *_: source.write_bytes(b"edited"))
    with pytest.raises(OSError, match=transfer.CHANGED):
        move(source, elsewhere / "b.jpg")
    assert source.read_bytes() == b"edited"
    assert not list(elsewhere.iterdir())


def test_of_two_names_one_is_dropped_and_never_the_last(source, tmp_path):
    digest = digest_of(source)
    (tmp_path / "linked").symlink_to(tmp_path)  # as where names differ by case only
    with pytest.raises(OSError, match="itself, by way of a linked folder"):
        drop(tmp_path / "linked/a.jpg", source, digest)
    os.link(source, tmp_path / "b.jpg")
    with pytest.raises(OSError, match="itself, by way of a linked folder"):
        drop(tmp_path / "linked/a.jpg", source, digest)
    drop(tmp_path / "b.jpg", source, digest)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.jpg", "linked"]
    (tmp_path / "b.jpg").symlink_to(source)
    for name, kept in ((source, tmp_path / "b.jpg"), (tmp_path / "b.jpg", source)):
        with pytest.raises(InputError, match="is a link"):
            drop(name, kept, digest)
    (tmp_path / "c.jpg").write_text("other")
    with pytest.raises(OSError, match="has changed"):
        drop(source, tmp_path / "c.jpg", digest)
    with pytest.raises(OSError, match=transfer.CHANGED):
        drop(tmp_path / "c.jpg", source, digest)
    assert is_file(source, digest)


def test_only_a_regular_file_is_a_file(source, tmp_path):
    digest = digest_of(source)
    (tmp_path / "link").symlink_to(source)
    os.mkfifo(tmp_path / "pipe")
    assert is_file(source, digest)
    assert is_file(tmp_path / "link", digest, links=True)
    for name in ("link", "pipe", ".", "none", "a.jpg/none"):
        assert not is_file(tmp_path / name, digest)


def test_a_file_of_a_terabyte_is_not_read_to_see_which_it_is(tmp_path):
    """A sparse one in the place of a sorted picture made `undo` read for an hour."""
    large, small = tmp_path / "large.png", tmp_path / "small.png"
    small.write_bytes(b"content")
    with large.open("wb") as file:
        file.truncate(2**40)
    digest = digest_of(small)
    assert digest_of(large) is None
    assert not is_file(large, digest)
    for act in (move_file, copy_file):
        with pytest.raises(OSError, match="has changed"):
            act(large, tmp_path / "target", tmp_path / "part", digest)
    assert sorted(tmp_path.iterdir()) == [large, small]
