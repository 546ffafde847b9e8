"""Files and folders appear whole or not at all."""

import errno
import json
import os
import shutil
import socket
import sys
import tarfile
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import pytest

from semishot.errors import InputError
from semishot.system import files
from semishot.system.files import (
    append_line,
    create,
    remove,
    whole_folder,
    write_json,
    write_whole,
    write_whole_with,
)
from semishot.system.open_files import (
    open_regular,
    open_tar,
    open_zip,
    own_text,
    read_member,
    read_regular,
    reading,
)
from semishot.system.tensor_files import DamagedError


class FullDiskError(Exception):
    pass


def half_then_fail(file: BinaryIO) -> None:
    file.write(b"half")
    raise FullDiskError


def test_a_file_is_written_with_its_folders(tmp_path):
    path = tmp_path / "new" / "deeper" / "note.txt"
    write_whole(path, "whole")
    assert path.read_text() == "whole"
    assert list(path.parent.iterdir()) == [path]


def test_a_failed_write_leaves_nothing(tmp_path):
    with pytest.raises(FullDiskError):
        write_whole_with(tmp_path / "note.txt", half_then_fail)
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "note.txt"
    path.write_text("old")
    with pytest.raises(FullDiskError):
        write_whole_with(path, half_then_fail)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_pipes_and_sockets_are_not_replaced(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the address of a socket is short
    pipe, place = tmp_path / "pipe", tmp_path / "socket"
    os.mkfifo(pipe)
    with socket.socket(socket.AF_UNIX) as made:
        made.bind("socket")
        for path in (pipe, place):
            with pytest.raises(InputError, match=f"{path} is not a regular file; choose another"):
                write_whole(path, "new")
    assert pipe.is_fifo()
    assert place.is_socket()
    assert sorted(tmp_path.iterdir()) == [pipe, place]


def test_a_link_is_replaced_and_what_it_leads_to_stays(tmp_path):
    link = tmp_path / "link"
    link.symlink_to("/dev/null")
    write_whole(link, "new")
    assert link.read_text() == "new"
    assert not link.is_symlink()


def test_readers_see_the_old_file_until_the_new_one_is_complete(tmp_path):
    path = tmp_path / "note.txt"
    path.write_text("old")

    def write(file: BinaryIO) -> None:
        file.write(b"new")
        (temporary,) = set(tmp_path.iterdir()) - {path}  # a rename in one folder is atomic
        assert temporary.name == f".note.txt.{os.getpid()}.tmp"
        assert path.read_text() == "old"

    write_whole_with(path, write)
    assert path.read_text() == "new"


def test_json_round_trip_keeps_letters_readable(tmp_path):
    value = {"name": "Ελληνικά", "numbers": [1, 0.1, None, True]}
    write_json(tmp_path / "value.json", value)
    text = (tmp_path / "value.json").read_text(encoding="utf-8")
    assert json.loads(text) == value
    assert "Ελληνικά" in text
    assert text.endswith("\n")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {"a": {1, 2}}])
def test_what_json_cannot_hold_leaves_the_old_file(tmp_path, value):
    path = tmp_path / "value.json"
    write_json(path, "old")
    with pytest.raises((ValueError, TypeError)):
        write_json(path, value)
    assert json.loads(path.read_text()) == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_appears_when_its_block_ends(tmp_path):
    folder = tmp_path / "new" / "pool"
    with whole_folder(folder) as temporary:
        (temporary / "a").write_text("1")
        assert not folder.exists()
    assert [p.name for p in folder.iterdir()] == ["a"]
    assert list(folder.parent.iterdir()) == [folder]


def test_a_folder_is_replaced_and_not_merged(tmp_path):
    folder = tmp_path / "pool"
    for name in ("old", "new"):
        with whole_folder(folder) as temporary:
            (temporary / name).write_text(name)
    assert [p.name for p in folder.iterdir()] == ["new"]
    assert list(tmp_path.iterdir()) == [folder]


@pytest.mark.parametrize("existed", [False, True])
@pytest.mark.parametrize("error", [FullDiskError, KeyboardInterrupt])
def test_a_folder_whose_block_fails_stays_as_it_was(tmp_path, existed, error):
    folder = tmp_path / "pool"
    if existed:
        folder.mkdir()
        (folder / "old").write_text("old")
    with pytest.raises(error), whole_folder(folder) as temporary:
        (temporary / "half").write_text("half")
        raise error
    assert list(tmp_path.iterdir()) == ([folder] if existed else [])
    assert not existed or (folder / "old").read_text() == "old"


def test_an_old_folder_survives_a_rename_that_fails(tmp_path, monkeypatch):
    folder = tmp_path / "pool"
    folder.mkdir()
    (folder / "old").write_text("old")
    rename = Path.rename

    def fail_into_place(self: Path, target: Path) -> Path:
        if Path(target) == folder and self.name.endswith(".tmp"):
            raise FullDiskError
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fail_into_place)
    with pytest.raises(FullDiskError), whole_folder(folder) as temporary:
        (temporary / "new").write_text("new")
    assert [p.name for p in folder.iterdir()] == ["old"]


def test_regular_files_are_read_up_to_a_bound(tmp_path):
    path = tmp_path / "note.txt"
    path.write_bytes(b"12345")
    assert read_regular(path, 5) == b"12345"
    with open_regular(path) as file:
        assert file.read(2) == b"12"
    with pytest.raises(InputError, match=f"{path} has 5 bytes, more than 4"):
        read_regular(path, 4)
    with pytest.raises(InputError, match="^it has 5 bytes, more than 4"):
        read_regular(path, 4, "it")
    with pytest.raises(FileNotFoundError):
        read_regular(tmp_path / "absent", 4)


def test_pipes_folders_and_devices_are_not_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "device").symlink_to("/dev/zero")
    for path in (tmp_path / "pipe", tmp_path / "device", tmp_path):
        with pytest.raises(InputError, match=f"{path} is not a regular file"):
            read_regular(path, 100)


def test_a_file_replaced_by_a_pipe_while_it_is_opened_is_not_waited_for(tmp_path, monkeypatch):
    path = tmp_path / "note.txt"
    path.write_bytes(b"12345")
    opened = os.open

    def replaced(name, flags):
        path.unlink()
        os.mkfifo(path)
        return opened(name, flags)

    monkeypatch.setattr(os, "open", replaced)
    with pytest.raises(InputError, match="is not a regular file"):
        read_regular(path, 100)


@pytest.mark.parametrize(
    "error",
    [KeyError("x"), ValueError("two\nlines"), OSError("cut"), OSError(errno.EINVAL, "seek")],
)
def test_any_error_of_content_is_one_line_with_a_remedy(error):
    expected = pytest.raises(InputError, match=r"^cannot read x.zip \(.+\); get it again$")
    with expected as caught, reading("x.zip", "get it again"):
        raise error
    assert "\n" not in str(caught.value)
    damaged = pytest.raises(DamagedError, match="it is damaged or of another version")
    with damaged, reading("x.zip", error_type=DamagedError):
        raise error


@pytest.mark.parametrize(
    "error", [InputError("clear"), FileNotFoundError(2, "gone"), PermissionError(13, "no")]
)
def test_errors_of_the_disk_and_clear_ones_stay_what_they_are(error):
    with pytest.raises(type(error)) as caught, reading("x"):
        raise error
    assert caught.value is error


def test_a_link_is_refused_where_it_must_not_be_followed(tmp_path, monkeypatch):
    path, link = tmp_path / "note.txt", tmp_path / "link"
    path.write_bytes(b"12345")
    link.symlink_to(path)
    assert read_regular(link, 5) == b"12345"
    assert open_regular(path, links=False).read() == b"12345"
    for one in (link, tmp_path / "nowhere"):
        if one != link:
            one.symlink_to("absent")
        with pytest.raises(InputError, match=f"{one} is a link, not a file"):
            open_regular(one, links=False)
    opened = os.open

    def replaced(name, flags):
        path.unlink()
        path.symlink_to("/dev/zero")
        return opened(name, flags)

    monkeypatch.setattr(os, "open", replaced)
    with pytest.raises(InputError, match="is a link, not a file"):
        open_regular(path, links=False)


def test_a_file_that_grows_is_read_up_to_the_bound(tmp_path, monkeypatch):
    path = tmp_path / "note.txt"
    path.write_bytes(b"12345")
    size = os.fstat

    class Smaller:
        st_mode, st_size = path.stat().st_mode, 2

    monkeypatch.setattr(os, "fstat", lambda descriptor: size(descriptor) and Smaller)
    assert read_regular(path, 5) == b"12345"
    for most in (2, 3, 4):
        with pytest.raises(InputError, match=f"{path} has more than {most} bytes"):
            read_regular(path, most)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_files_of_proc_neither_block_nor_go_on_for_ever():
    """Their size is 0; the first has content, the second has no end, the third blocks."""
    assert b"Name:" in read_regular(Path("/proc/self/status"), 2**16)
    endless, blocking = Path("/proc/self/pagemap"), Path("/proc/kmsg")
    with pytest.raises(InputError, match="/proc/self/pagemap has more than 1,000 bytes"):
        read_regular(endless, 1000)
    with open_regular(endless) as file:
        assert len(file.read(2**20)) == 2**20
    for read in (lambda: open_regular(blocking).read(), lambda: read_regular(blocking, 2**26)):
        with suppress(InputError, PermissionError):  # it may have something to say
            read()


def test_a_line_is_added_and_never_through_a_link(tmp_path):
    path, link = tmp_path / "log", tmp_path / "link"
    append_line(path, "é")
    append_line(path, "2")
    assert path.read_text("utf-8") == "é\n2\n"
    link.symlink_to(path)
    with pytest.raises(OSError, match="symbolic links"):
        append_line(link, "3")
    os.link(path, tmp_path / "second")
    with pytest.raises(InputError, match="is not a regular file or has a second name"):
        append_line(path, "3")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises((InputError, OSError)):
        append_line(tmp_path / "pipe", "3")
    assert path.read_text("utf-8") == "é\n2\n"


def test_what_a_killed_process_of_the_same_number_left_is_overwritten(tmp_path):
    (tmp_path / f".note.txt.{os.getpid()}.tmp").write_text("longer than the new one")
    write_whole(tmp_path / "note.txt", "new")
    assert (tmp_path / "note.txt").read_text() == "new"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_new_file_is_new(tmp_path):
    with create(tmp_path / "new") as file:
        file.write(b"1")
    with pytest.raises(FileExistsError):
        create(tmp_path / "new")
    (tmp_path / "link").symlink_to("absent")
    with pytest.raises(FileExistsError):
        create(tmp_path / "link")
    assert not (tmp_path / "absent").exists()


def test_zips_and_tars_close_their_files(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as made:
        made.writestr("x", b"12345")
    with tarfile.open(tmp_path / "a.tar", "w") as made:
        made.add(tmp_path / "a.zip", "a.zip")
    with open_zip(tmp_path / "a.zip") as opened:
        assert read_member(opened, "x", 3) == b"123"
        held = opened.fp
    assert held.closed
    with open_tar(tmp_path / "a.tar") as opened:
        held = opened.fileobj
        assert opened.getnames() == ["a.zip"]
    assert held.closed
    (tmp_path / "bad").write_bytes(b"1" * 600)
    before = set(Path("/proc/self/fd").iterdir()) if sys.platform == "linux" else set()
    for refused in (open_zip, open_tar):
        with pytest.raises((zipfile.BadZipFile, tarfile.ReadError)):
            refused(tmp_path / "bad")
    assert sys.platform != "linux" or set(Path("/proc/self/fd").iterdir()) == before


def test_a_file_of_the_package_is_text():
    text = own_text("report/page.css")
    assert "{" in text
    assert own_text(Path(files.__file__).parents[1] / "report" / "page.css") == text


def test_a_pipe_is_not_removed_as_if_it_were_ours(tmp_path):
    """A pipe named like a build that was interrupted was deleted."""
    os.mkfifo(tmp_path / ".pool.building")
    with pytest.raises(InputError, match="is not a regular file"):
        remove(tmp_path / ".pool.building")
    assert (tmp_path / ".pool.building").is_fifo()


def test_a_folder_behind_a_link_is_replaced_by_a_new_one_and_stays(tmp_path):
    """The link was left beside it under a temporary name."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "note.txt").write_text("kept")
    (tmp_path / "folder").symlink_to(tmp_path / "elsewhere")
    with whole_folder(tmp_path / "folder") as temporary:
        (temporary / "new.txt").write_text("new")
    assert [p.name for p in sorted(tmp_path.iterdir())] == ["elsewhere", "folder"]
    assert (tmp_path / "folder" / "new.txt").read_text() == "new"
    assert (tmp_path / "elsewhere" / "note.txt").read_text() == "kept"


def test_a_replaced_folder_that_cannot_be_removed_is_named(tmp_path, monkeypatch, capsys):
    """It was left beside the new one without a word."""
    folder = tmp_path / "folder"
    folder.mkdir()

    def forbidden(path: Path) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), str(path))

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", lambda path, **options: options or forbidden(path))
        with whole_folder(folder) as temporary:
            (temporary / "new.txt").write_text("new")
    said = capsys.readouterr().err
    assert f".folder.{os.getpid()}.old was replaced and cannot be removed (Operation not" in said
    assert (folder / "new.txt").exists()


def test_a_file_without_a_name_leaves_nothing(tmp_path):
    with files.without_name(tmp_path) as file:
        assert file.write(b"content") == 7
        file.seek(3)
        assert file.read(9) == b"tent"
        if sys.platform != "win32":
            assert list(tmp_path.iterdir()) == []
    assert list(tmp_path.iterdir()) == []
