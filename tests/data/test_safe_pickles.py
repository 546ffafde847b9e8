"""The restricted pickle reader: values and arrays of every protocol; nothing is ever called."""

import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from semishot.data.safe_pickles import find_bytes, load, unescape
from semishot.errors import InputError

ARRAYS = {
    "bytes": np.arange(24, dtype=np.uint8).reshape(2, 3, 4),
    "integers": np.array([-(2**40), 3]),
    "floats": np.array([[0.5, -1e300]]),
    "big endian": np.array([1, 515], ">u2"),
    "Fortran": np.asfortranarray(np.arange(6, dtype=np.int16).reshape(2, 3)),
    "axes": np.arange(24, dtype=np.uint8).reshape(2, 3, 4).transpose(1, 0, 2),
    "strided": np.arange(10, dtype=np.float32)[::3],
    "booleans": np.array([True, False]),
    "empty": np.zeros((0, 3), np.uint8),
    "no axis": np.array(7),
}


def written(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "data.pkl"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("protocol", range(6))
def test_arrays_of_every_protocol(tmp_path, protocol):
    held = {
        "list": [ARRAYS],
        "tuple": (ARRAYS["floats"], np.float32(0.25)),
        "twice": ARRAYS["bytes"],
    }
    read = load(written(tmp_path, pickle.dumps(held, protocol)))
    assert list(read["list"][0]) == list(ARRAYS)
    for name, array in ARRAYS.items():
        found = read["list"][0][name]
        assert type(found) is np.ndarray
        assert found.dtype.kind == array.dtype.kind, name
        np.testing.assert_array_equal(found, array, err_msg=name)
    np.testing.assert_array_equal(read["tuple"][0], ARRAYS["floats"])
    assert read["tuple"][1] == np.float32(0.25)
    assert type(read["tuple"][1]) is np.float32
    assert read["twice"] is read["list"][0]["bytes"]


# What Python 2.7 with NumPy 1 writes for {'image_data': array([[1, 200]], uint8), 'n01': [0]}
PYTHON_2 = (
    b"\x80\x02}q\x00(U\nimage_dataq\x01cnumpy.core.multiarray\n_reconstruct\nq\x02"
    b"cnumpy\nndarray\nq\x03K\x00\x85U\x01b\x87Rq\x04(K\x01K\x01K\x02\x86cnumpy\ndtype\nq\x05"
    b"U\x02u1K\x00K\x01\x87Rq\x06(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    b"\x89U\x02\x01\xc8tbU\x03n01]q\x07K\x00au."
)


def test_python_2(tmp_path):
    read = load(written(tmp_path, PYTHON_2))
    assert read["n01"] == [0]
    assert read["image_data"].dtype == np.uint8
    assert read["image_data"].tolist() == [[1, 200]]


@pytest.mark.parametrize("protocol", range(1, 6))
def test_byte_strings_are_found_where_they_lie(tmp_path, protocol):
    """Short and long ones, plain and in arrays, in the order of the file, and nothing else."""
    strings = [b"\x89PNG" + bytes(range(256)) * times for times in (0, 1, 300)]
    arrays = [np.frombuffer(string, np.uint8)[:, None].copy() for string in strings]
    held = {"images": arrays, "others": [b"PNG", "\x88PNG", 9], "last": strings[1]}
    path = written(tmp_path, pickle.dumps(held, protocol))
    found = find_bytes(path, b"\x89PNG")
    parts = [path.read_bytes()[start : start + size] for start, size in found]
    assert [unescape(part, b"\x89PNG") for part in parts] == [*strings, strings[1]]


class Calls:
    def __init__(self, function, *arguments):
        self.reduced = function, arguments

    def __reduce__(self):
        return self.reduced


@pytest.mark.parametrize("protocol", range(6))
def test_a_hostile_pickle_is_refused_by_name_and_does_not_run(tmp_path, protocol):
    marker = tmp_path / "ran"
    hostile = {"image_data": Calls(os.system, f"touch '{marker}'"), "class_dict": {}}
    data = pickle.dumps(hostile, protocol)
    path = written(tmp_path, data)
    with pytest.raises(InputError, match=rf"data.pkl tries to call {os.name}.system: refused"):
        load(path)
    assert not marker.exists()
    pickle.loads(data)  # it is a real one
    assert marker.exists()


@pytest.mark.parametrize(
    ("data", "called"),
    [
        (b"cos\nsystem\n(S'true'\ntR.", "os.system"),
        (b"c__builtin__\neval\n(S'1'\ntR.", "__builtin__.eval"),
        (b"\x80\x02cos\nsystem\n)\x81.", "os.system"),
        (b"\x80\x04\x8c\x05numpy\x8c\x0cf2py.compile\x93.", "numpy.f2py.compile"),
        (b"cnumpy.core.multiarray\nfromfile\n.", "numpy.core.multiarray.fromfile"),
    ],
)
def test_every_other_name_is_refused(tmp_path, data, called):
    with pytest.raises(InputError, match=f"tries to call {called}: refused"):
        load(written(tmp_path, data))


def array_pickle(dtype: bytes, shape: bytes = b"(I2\nt", data: bytes = b"S'ab'\n") -> bytes:
    return (
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntS'b'\ntR(I1\n"
        + (shape + b"cnumpy\ndtype\n(S'" + dtype + b"'\nI0\nI1\ntR")
        + (b"(I3\nS'|'\nNNNI-1\nI-1\nI0\ntbI00\n" + data + b"tb.")
    )


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"<!DOCTYPE html><html>Too many downloads</html>", "load key"),
        (b"", "Ran out of input"),
        (pickle.dumps(ARRAYS)[:-40], "truncated|exhausted|Ran out"),
        (pickle.dumps(np.array([{}, None], object), 2), "an array of 'O8', not of numbers"),
        (pickle.dumps(np.zeros(2, "i4,f8"), 2), "an array of 'V12', not of numbers"),
        (array_pickle(b"u1", b"(I3\nt"), "buffer size does not match"),
        (array_pickle(b"O8"), "an array of 'O8'"),
        (b"c_codecs\nencode\n(S'a'\nS'zip'\ntR.", "bytes in 'zip', not latin1"),
    ],
)
def test_a_damaged_or_odd_file_is_one_line(tmp_path, data, reason):
    with pytest.raises(InputError, match=rf"cannot read .*data.pkl .*({reason}).*; get") as caught:
        load(written(tmp_path, data))
    assert "\n" not in str(caught.value)
