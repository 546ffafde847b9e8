"""A .npy file, left on the disk: its header may say anything, and is believed as far as the file goes."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semishot.errors import InputError
from semishot.system.files import check_regular


def map_array(path: Path) -> NDArray[Any]:
    """The array, read when it is used; InputError if there is none in the file."""
    check_regular(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # shapes that overflow
            array: Any = np.load(path, mmap_mode="r", allow_pickle=False)
    except (FileNotFoundError, PermissionError, IsADirectoryError):
        raise
    except Exception as error:  # numpy's parser of headers raises a dozen types
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise InputError(f"{path} is no .npy file of numbers or strings ({reason})") from error
    if isinstance(array, np.lib.npyio.NpzFile):
        array.close()
    if not isinstance(array, np.ndarray):
        raise InputError(f"{path} is no .npy file of numbers or strings")
    held: NDArray[Any] = array
    return held
