"""Where numbers come from: the parts of a training, the data."""

from dataclasses import replace

import numpy as np
import pytest

from semishot.data.pool import ImagePool
from semishot.errors import InputError
from semishot.training import run_folder


def test_parts_of_a_training_add_up_and_name_each_device_and_code():
    first = {"code": "one", "commit": "c", "device": "a GPU", "date": "today", "seconds": 4.0}
    second = {**first, "code": "two", "commit": "", "date": "tomorrow", "seconds": 2.0}
    both = {**first, "code": "one + two", "commit": "c + ", "seconds": 6.0}
    assert run_folder.joined([first, second]) == both
    assert run_folder.joined([both, second]) == {**both, "seconds": 8.0}


def test_a_damaged_file_of_a_training_is_named(tmp_path):
    path = tmp_path / run_folder.TRAINING_FILE
    assert run_folder.training_of(path) == {}
    path.write_text('{"code": 3}')
    with pytest.raises(InputError, match="training.json: code: expected `str`, got `int`"):
        run_folder.training_of(path)


def test_the_data_are_named_by_fingerprint_and_an_unusual_reduction():
    unusual = {"preparation": "cubic-warped"}
    pool = ImagePool("omniglot", np.zeros((0, 1, 2, 2), np.uint8), (), unusual)
    data = {"data": pool.fingerprint[:16]}
    assert run_folder.data_state(pool) == {**data, **unusual}
    assert run_folder.data_state(replace(pool, about={})) == data
