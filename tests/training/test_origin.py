"""Where numbers come from: the files of a code state, the sessions of a training, the data."""

import json
from dataclasses import replace

import numpy as np
import pytest

from semishot.data.pool import ImagePool
from semishot.errors import InputError
from semishot.system.files import PACKAGE
from semishot.training import origin


def test_a_code_state_is_of_files_that_make_numbers():
    names = {path.relative_to(PACKAGE).as_posix() for path in origin.code_files()}
    assert names >= {"prototypes.py", "data/splits.py", "refine/oslo.py", "training/update.py"}
    assert names >= {"network/fused/adam.py", "paper/baselines.py", "paper/table5.py"}
    rooms = {name.split("/")[0] for name in names}
    assert not rooms & {"label", "sorter", "report", "commands", "datasets", "workers", "system"}
    assert not names & origin.DESCRIBE
    assert all((PACKAGE / name).is_file() for name in origin.DESCRIBE)
    state = origin.code_state()
    assert len(state["code"]) == 12
    assert set(state) <= {"code", "commit"}


def test_sessions_add_up_and_say_each_device_and_code(tmp_path, monkeypatch):
    path = tmp_path / origin.TRAINING_FILE
    assert origin.training_of(path) == {}
    monkeypatch.setattr(origin, "code_state", lambda: {"code": "one", "commit": "c"})
    ticks = iter([10.0, 11.5, 14.0])
    first = origin.Sessions(tmp_path, "a GPU", clock=lambda: next(ticks))
    first.save()
    assert origin.training_of(path)["training"]["seconds"] == 1.5
    first.save()
    monkeypatch.setattr(origin, "code_state", lambda: {"code": "two"})
    ticks = iter([0.0, 2.0])
    origin.Sessions(tmp_path, "a GPU", resumed=True, clock=lambda: next(ticks)).save()
    found = origin.training_of(path)["training"]
    assert (found["code"], found["commit"], found["device"]) == ("one + two", "c + ", "a GPU")
    assert (found["seconds"], found["date"]) == (6.0, first.date)
    ticks = iter([0.0, 3.0])
    origin.Sessions(tmp_path, "a GPU", clock=lambda: next(ticks)).save()  # trained from the start
    found = origin.training_of(path)["training"]
    assert (found["code"], found["seconds"]) == ("two", 3.0)


@pytest.mark.parametrize("content", [[], {"sessions": [{"code": 3}]}, {}])
def test_a_damaged_file_of_sessions_is_named(content, tmp_path):
    path = tmp_path / origin.TRAINING_FILE
    path.write_text(json.dumps(content))
    with pytest.raises(InputError, match="training.json: "):
        origin.training_of(path)


def test_the_data_are_named_by_fingerprint_and_an_unusual_reduction():
    pool = ImagePool(
        "omniglot", np.zeros((0, 1, 2, 2), np.uint8), (), {"preparation": "cubic-warped"}
    )
    assert origin.data_state(pool) == {"data": pool.fingerprint[:16], "preparation": "cubic-warped"}
    assert origin.data_state(replace(pool, about={})) == {"data": pool.fingerprint[:16]}
