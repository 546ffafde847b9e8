"""Memory-mapped arrays in .npy files, whose headers are not trusted."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semishot.system.open_files import check_regular, reading


def map_array(path: Path) -> NDArray[Any]:
    """The array, read when it is used; InputError if the file does not hold one."""
    check_regular(path.stat(), path)
    with reading(path, "it must be a .npy file of numbers or strings"):
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # shapes that overflow
            array: Any = np.load(path, mmap_mode="r", allow_pickle=False)
        if isinstance(array, np.lib.npyio.NpzFile):
            array.close()
        if not isinstance(array, np.ndarray):
            raise ValueError(f"it holds {type(array).__name__}")
    held: NDArray[Any] = array
    return held
