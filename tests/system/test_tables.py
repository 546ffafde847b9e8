"""Tables and arrays: the memory they take is bounded by their size and their rows, whatever they claim."""

import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from semishot.errors import InputError
from semishot.sorter.feature_files import read_features, read_labels
from semishot.sorter.listing import from_table, read_table
from semishot.system import npy, tables
from semishot.system.npy import make_room, map_array, map_to_fill, write_array
from semishot.system.tables import BYTES_PER_ROW, MOST_IN_A_ROW, read_rows

FIXED = 2**20
"""Of any table: what is read at once."""


def peak(work) -> int:
    """The least of three: threads that other tests have left take memory, too."""
    found = []
    for _ in range(3):
        tracemalloc.start()
        try:
            work()
            found.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    return min(found)


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_rows_of_a_table_have_their_lines(tmp_path, delimiter):
    text = '\ufeffpath,label\r\n\r\na,"two\nlines"\r\nb,ü\r\n'.replace(",", delimiter)
    (tmp_path / "t.csv").write_bytes(text.encode())
    expected = [(1, ["path", "label"]), (4, ["a", "two\nlines"]), (5, ["b", "ü"])]
    assert list(read_rows(tmp_path / "t.csv")) == expected


@pytest.mark.parametrize(
    ("row", "repeats"),
    [
        ("a\n", 8_000),
        (",\n", 8_000),
        ("some/folder/with/pictures/{}.jpg,cat\n", 6_000),
        ("\N{CAT FACE}{},\N{CAT FACE}\n", 8_000),
        ("x{0},x{0}\n", 8_000),
    ],
    ids=["no label", "no path", "plain", "wide characters", "a class for each"],
)
def test_a_table_takes_memory_by_its_rows_and_its_size(tmp_path, row, repeats):
    path = tmp_path / "t.csv"
    path.write_text("path,label\n" + "".join(row.format(n) for n in range(repeats)), "utf-8")
    size = path.stat().st_size
    took = peak(lambda: read_table(path))
    assert took < BYTES_PER_ROW * repeats + 4 * size + FIXED
    assert len(read_table(path).rows) == repeats


def test_the_images_of_a_table_take_memory_by_its_rows(tmp_path):
    path = tmp_path / "t.csv"
    rows = (f"some/folder/with/pictures/{n}.jpg,{n % 7}\n" for n in range(4_000))
    path.write_text("path,label\n" + "".join(rows))
    assert peak(lambda: from_table(path)) < 1536 * 4_000 + 4 * path.stat().st_size + FIXED


@pytest.mark.parametrize(
    "content",
    ["," * 3_000_000, '"\n",' * 600_000, "path,label\n" + '"a\n","b",' * 300_000],
    ids=["a line of commas", "cells with line breaks", "in the second row"],
)
def test_a_row_without_end_is_refused_before_it_is_read(tmp_path, content):
    path = tmp_path / "t.csv"
    path.write_text(content)

    def refused() -> None:
        with pytest.raises(InputError, match=f"t.csv: a row has more than {MOST_IN_A_ROW:,} char"):
            read_table(path)

    assert peak(refused) < 100 * MOST_IN_A_ROW  # cells of one character each


def test_a_table_of_too_many_bytes_or_rows_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "t.csv"
    path.write_text("path,label\n" + "a,b\n" * 5)
    monkeypatch.setattr(tables, "MOST_ROWS", 5)
    assert len(read_table(path).rows) == 5
    monkeypatch.setattr(tables, "MOST_ROWS", 4)
    with pytest.raises(InputError, match="t.csv has more than 4 rows"):
        read_table(path)
    np.save(tmp_path / "f.npy", np.ones((5, 2)))
    with pytest.raises(InputError, match="f.npy has more than 4 rows"):
        read_features(tmp_path / "f.npy")
    monkeypatch.setattr(tables, "MOST_BYTES", 30)
    with pytest.raises(InputError, match="t.csv has 31 bytes, more than 30"):
        read_table(path)


def test_a_table_that_claims_no_size_is_read_up_to_the_bound(monkeypatch):
    """Files in /proc have size 0, as one that grows has another."""
    path = Path("/proc/self/mountinfo")
    if not path.exists():
        pytest.skip("/proc is Linux's")
    monkeypatch.setattr(tables, "MOST_BYTES", 20)
    with pytest.raises(InputError, match="mountinfo has more than 20 bytes"):
        list(read_rows(path))


# Arrays


def header(kind: object, shape: object, size: int | None = None) -> bytes:
    text = repr({"descr": kind, "fortran_order": False, "shape": shape}).encode() + b"\n"
    return b"\x93NUMPY\x02\x00" + struct.pack("<I", len(text) if size is None else size) + text


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (header("<U0", (500_000_000,)), "it holds 500,000,000 strings of no characters"),
        (header("|S0", (500_000_000,)), "strings of no characters"),
        (header("|V0", (500_000_000,)), r"it holds \|V0"),
        (header("<f8", (10, 3)) + bytes(239), r"too few for float64 \(10, 3\)"),
        (header("<f8", (2**62, 3)), "bytes, too few for float64"),
        (header("<f8", (2**80,)), "the shape"),
        (header("<f8", (-1, 3)), "the shape"),
        (header("<f8", (1,) * 40) + bytes(8), "the shape"),
        (header("|O", (3,)), "it holds object"),
        (header([("a", "<f8")], (3,)), "it holds "),
        (header([("a", "<f8"), ("b", "|O")], (3,)), "it holds "),
        (header("<M8[s]", (3,)) + bytes(24), "it holds datetime64"),
        (header("<f8", (3,), 2**32 - 1), "a header of 4,294,967,295 bytes"),
        (header("<f8", (3,), 20_000) + bytes(30_000), "a header of 20,000 bytes"),
        (b"\x93NUMPY\x03\x00" + bytes(100), "version 3.0"),
        (b"\x93NUMPY\x01\x00\xff", "a header of|EOF|expected"),
        (b"PK\x03\x04" + bytes(100), "magic"),
        (b"", "EOF|expected"),
    ],
)
def test_an_array_that_does_not_hold_what_it_claims_is_one_line(tmp_path, content, reason):
    path = tmp_path / "l.npy"
    path.write_bytes(content)

    def refused() -> None:
        for read in (map_array, lambda path: read_labels(path, 3)):
            line = rf"cannot read {path} \(.*({reason}).*\); it must be a .npy file of numbers or"
            with pytest.raises(InputError, match=line):
                read(path)

    assert peak(refused) < 2**20


def test_labels_of_another_number_of_rows_are_not_read(tmp_path):
    np.save(tmp_path / "l.npy", np.zeros(3_000_000, np.int8))

    def refused() -> None:
        with pytest.raises(InputError, match="l.npy has 3,000,000 labels for 3 rows of features"):
            read_labels(tmp_path / "l.npy", 3)

    assert peak(refused) < 2**20


def test_labels_that_are_too_long_are_refused(tmp_path, monkeypatch):
    np.save(tmp_path / "l.npy", np.array(["cat", "owl"]))
    assert read_labels(tmp_path / "l.npy", 2) == ["cat", "owl"]
    monkeypatch.setattr("semishot.sorter.feature_files.MOST_BYTES", 20)
    with pytest.raises(InputError, match="l.npy has 24 bytes, more than 20"):
        read_labels(tmp_path / "l.npy", 2)


@pytest.mark.parametrize("kind", ["<i8", ">f4", "|u1", "|b1", "<U3", "<c8"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_come_back_as_they_were_saved(tmp_path, kind, order):
    for shape in ((3, 5), (0, 5), (), (1,)):
        saved = np.asarray(np.arange(np.prod(shape, dtype=int)).reshape(shape), kind, order=order)
        np.save(tmp_path / "a.npy", saved)
        found = map_array(tmp_path / "a.npy")
        assert found.dtype == saved.dtype
        np.testing.assert_array_equal(found, saved)


def test_an_array_is_filled_through_its_map_and_known_by_its_file(tmp_path):
    path = tmp_path / "a.npy"
    room = make_room(path, np.float32, (2, 3))
    room[:] = 1
    room.flush()
    again = map_to_fill(path)
    again[0] = 2
    again.flush()
    np.testing.assert_array_equal(np.load(path), [[2, 2, 2], [1, 1, 1]])
    assert npy.file_of(room) == npy.file_of(map_array(path)) == path
    assert npy.file_of(np.ones(3)) is None
    with pytest.raises(FileExistsError):
        write_array(path, np.ones(3))
