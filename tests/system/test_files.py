"""Files and folders appear whole or not at all; only regular files are read, up to a bound."""

import errno
import json
import os

import pytest

from semishot.errors import InputError
from semishot.system.files import (
    append_line,
    create,
    open_regular,
    read_json,
    read_regular,
    reading,
    real_path,
    whole_folder,
    write_json,
    write_whole,
)
from semishot.system.tensor_files import DamagedError


class FullDiskError(Exception):
    pass


@pytest.mark.parametrize("existed", [False, True])
def test_a_failed_write_leaves_what_was_there(tmp_path, existed, monkeypatch):
    path = tmp_path / "note.txt"
    if existed:
        write_whole(path, "old")

    def fail(descriptor: int) -> None:
        raise FullDiskError

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(FullDiskError):
        write_whole(path, "new")
    assert [p.read_text() for p in tmp_path.iterdir()] == ["old"] * existed


def test_readers_see_the_old_file_until_the_new_one_is_complete(tmp_path, monkeypatch):
    path = tmp_path / "new" / "deeper" / "note.txt"
    write_whole(path, "old")
    seen = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: seen.append(path.read_text()))
    write_whole(path, "new")
    assert (seen, path.read_text()) == (["old"], "new")
    assert list(path.parent.iterdir()) == [path]


def test_a_pipe_is_not_replaced_and_a_link_is_but_not_its_target(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="pipe is not a regular file; choose another name"):
        write_whole(tmp_path / "pipe", "new")
    assert (tmp_path / "pipe").is_fifo()
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "link").symlink_to(tmp_path / "precious")
    write_whole(tmp_path / "link", "new")
    assert (tmp_path / "link").read_text() == "new"
    assert (tmp_path / "precious").read_text() == "precious"


def test_json_round_trip_keeps_letters_readable(tmp_path):
    value = {"name": "Ελληνικά", "numbers": [1, 0.1, None, True]}
    write_json(tmp_path / "value.json", value)
    assert read_json(tmp_path / "value.json") == value
    assert "Ελληνικά" in (tmp_path / "value.json").read_text(encoding="utf-8")


@pytest.mark.parametrize("value", [float("nan"), {"a": {1, 2}}])
def test_what_json_cannot_hold_leaves_the_old_file(tmp_path, value):
    path = tmp_path / "value.json"
    write_json(path, "old")
    with pytest.raises((ValueError, TypeError)):
        write_json(path, value)
    assert json.loads(path.read_text()) == "old"


def test_a_folder_is_replaced_as_a_whole_when_its_block_ends(tmp_path):
    folder = tmp_path / "new" / "pool"
    for name in ("old", "new"):
        with whole_folder(folder) as temporary:
            (temporary / name).write_text(name)
            assert not (folder / name).exists()
    assert [p.name for p in folder.iterdir()] == ["new"]
    assert list(folder.parent.iterdir()) == [folder]


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


def test_regular_files_are_read_up_to_a_bound(tmp_path):
    path = tmp_path / "note.txt"
    path.write_bytes(b"12345")
    assert read_regular(path, 5) == b"12345"
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
        for read in (open_regular, lambda path: read_regular(path, 100)):
            with pytest.raises(InputError, match=f"{path} is not a regular file"):
                read(path)


def test_a_link_is_refused_where_it_must_not_be_followed(tmp_path):
    path, link = tmp_path / "note.txt", tmp_path / "link"
    path.write_bytes(b"12345")
    link.symlink_to(path)
    assert read_regular(link, 5) == b"12345"
    with open_regular(path, links=False) as file:
        assert file.read() == b"12345"
    with pytest.raises(InputError, match=f"{link} is a link, not a file"):
        open_regular(link, links=False)


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


@pytest.mark.parametrize("error", [InputError("clear"), FileNotFoundError(2, "gone")])
def test_errors_of_the_disk_and_clear_ones_stay_what_they_are(error):
    with pytest.raises(type(error)) as caught, reading("x"):
        raise error
    assert caught.value is error


def test_lines_are_added_and_a_new_file_is_new(tmp_path):
    append_line(tmp_path / "log", "é")
    append_line(tmp_path / "log", "2")
    assert (tmp_path / "log").read_text("utf-8") == "é\n2\n"
    with pytest.raises(FileExistsError):
        create(tmp_path / "log")


def test_links_that_lead_in_a_circle_have_a_path_all_the_same(tmp_path):
    """`Path.resolve` ended commands in a traceback: RuntimeError, until Python 3.12."""
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    (tmp_path / "c").symlink_to(tmp_path / "folder")
    assert real_path(tmp_path / "a" / "x").is_absolute()
    assert real_path(tmp_path / "c" / "x") == tmp_path.resolve() / "folder" / "x"
