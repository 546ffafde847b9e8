"""Tables and arrays: bounded in size, whatever they claim."""

import struct

import numpy as np
import pytest

from semishot.errors import InputError
from semishot.sorter import predictions
from semishot.sorter.feature_files import read_features
from semishot.sorter.label_tables import read_table
from semishot.system import npy, tables
from semishot.system.npy import make_room, map_array, write_array
from semishot.system.tables import csv_text, read_rows


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_rows_of_a_table_have_their_lines(tmp_path, delimiter):
    text = '\ufeffpath,label\r\n\r\na,"two\nlines"\r\nb,ü\r\n'.replace(",", delimiter)
    (tmp_path / "t.csv").write_bytes(text.encode())
    expected = [(1, ["path", "label"]), (4, ["a", "two\nlines"]), (5, ["b", "ü"])]
    assert list(read_rows(tmp_path / "t.csv")) == expected


def test_a_carriage_return_in_a_name_begins_no_row(tmp_path):
    """It began one with `=`, a formula, and the table could not be read again."""
    rows = [("path", "label"), ("a\r=cmd|x.png", "it's"), ("b\r\n,", '"c"'), ("d", 0.5)]
    (tmp_path / "t.csv").write_text(csv_text(rows), newline="")
    assert (tmp_path / "t.csv").read_bytes().count(b'"a\r=cmd|x.png",it\'s\n') == 1
    found = [tuple(row) for _, row in read_rows(tmp_path / "t.csv")]
    assert found == [*rows[:-1], ("d", "0.5")]
    shown = predictions.csv_table(("path", "label"), rows[1:])
    (tmp_path / "t.csv").write_text(shown, newline="")
    assert read_table(tmp_path / "t.csv")[0][1]["path"] == "a\r=cmd|x.png"


def test_a_table_of_too_many_bytes_or_rows_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "t.csv"
    path.write_text("path,label\n" + "a,b\n" * 5)
    monkeypatch.setattr(tables, "MOST_ROWS", 5)
    assert len(read_table(path)) == 5
    monkeypatch.setattr(tables, "MOST_ROWS", 4)
    with pytest.raises(InputError, match="t.csv has more than 4 rows"):
        read_table(path)
    np.save(tmp_path / "f.npy", np.ones((5, 2)))
    with pytest.raises(InputError, match="f.npy has more than 4 rows"):
        read_features(tmp_path / "f.npy")
    monkeypatch.setattr(tables, "MOST_BYTES", 30)
    with pytest.raises(InputError, match="t.csv has 31 bytes, more than 30"):
        read_table(path)


# Arrays


def header(kind: object, shape: object, size: int | None = None) -> bytes:
    text = repr({"descr": kind, "fortran_order": False, "shape": shape}).encode() + b"\n"
    return b"\x93NUMPY\x02\x00" + struct.pack("<I", len(text) if size is None else size) + text


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (header("<U0", (500_000_000,)), "it holds <U0"),
        (header("<f8", (10, 3)) + bytes(239), "mmap length is greater than file size"),
        (header("|O", (3,)), "Python objects"),
        (header("<M8[s]", (3,)) + bytes(24), "it holds datetime64"),
        (b"PK\x03\x04" + bytes(100), "magic"),
    ],
)
def test_an_array_that_does_not_hold_what_it_claims_is_one_line(tmp_path, content, reason):
    path = tmp_path / "l.npy"
    path.write_bytes(content)
    line = rf"cannot read {path} \(.*({reason}).*\); it must be a .npy file of numbers or"
    with pytest.raises(InputError, match=line):
        map_array(path)


@pytest.mark.parametrize("kind", ["<i8", ">f4", "|u1", "|b1", "<U3", "<c8"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_come_back_as_they_were_saved(tmp_path, kind, order):
    for shape in ((3, 5), (0, 5), (), (1,)):
        saved = np.asarray(np.arange(np.prod(shape, dtype=int)).reshape(shape), kind, order=order)
        np.save(tmp_path / "a.npy", saved)
        found = map_array(tmp_path / "a.npy")
        assert found.dtype == saved.dtype
        np.testing.assert_array_equal(found, saved)


def test_an_array_that_is_mapped_is_known_by_its_file(tmp_path):
    path = tmp_path / "a.npy"
    room = make_room(path, np.float32, (2, 3))
    assert npy.file_of(room) == npy.file_of(map_array(path)) == path
    assert npy.file_of(np.ones(3)) is None
    with pytest.raises(FileExistsError):
        write_array(path, np.ones(3))
