"""Where numbers come from: the files behind a code state, the sessions of a training, the data."""

import json
from dataclasses import replace

import numpy as np
import pytest

from semishot.data.pool import ImagePool
from semishot.errors import InputError
from semishot.system.files import PACKAGE
from semishot.training import code_state, run_folder


def test_a_code_state_is_of_files_that_make_numbers():
    names = {path.relative_to(PACKAGE).as_posix() for path in code_state.code_files()}
    assert names >= {"prototypes.py", "data/splits.py", "refine/oslo.py", "training/update.py"}
    assert names >= {"network/fused/adam.py", "paper/baselines.py", "paper/table5.py"}
    rooms = {name.split("/")[0] for name in names}
    assert not rooms & {"label", "sorter", "report", "commands", "datasets", "workers", "system"}
    assert not names & code_state.DESCRIBE
    assert all((PACKAGE / name).is_file() for name in code_state.DESCRIBE)
    state = code_state.code_state()
    assert len(state["code"]) == 12
    assert set(state) <= {"code", "commit"}


def test_sessions_add_up_and_say_each_device_and_code(tmp_path, monkeypatch):
    path = tmp_path / run_folder.TRAINING_FILE
    assert run_folder.training_of(path) == {}
    monkeypatch.setattr(run_folder, "code_state", lambda: {"code": "one", "commit": "c"})
    ticks = iter([10.0, 11.5, 14.0])
    first = run_folder.SessionLog(tmp_path, "a GPU", clock=lambda: next(ticks))
    first.save()
    assert run_folder.training_of(path)["training"]["seconds"] == 1.5
    first.save()
    monkeypatch.setattr(run_folder, "code_state", lambda: {"code": "two"})
    ticks = iter([0.0, 2.0])
    earlier = run_folder.read_sessions(path)
    run_folder.SessionLog(tmp_path, "a GPU", earlier, clock=lambda: next(ticks)).save()
    training = run_folder.training_of(path)["training"]
    assert (training["code"], training["commit"], training["device"]) == (
        "one + two",
        "c + ",
        "a GPU",
    )
    assert (training["seconds"], training["date"]) == (6.0, first.date)
    ticks = iter([0.0, 3.0])
    run_folder.SessionLog(
        tmp_path, "a GPU", clock=lambda: next(ticks)
    ).save()  # trained from the start
    training = run_folder.training_of(path)["training"]
    assert (training["code"], training["seconds"]) == ("two", 3.0)


@pytest.mark.parametrize("content", [[], {"sessions": [{"code": 3}]}, {}])
def test_a_damaged_file_of_sessions_is_named(content, tmp_path):
    path = tmp_path / run_folder.TRAINING_FILE
    path.write_text(json.dumps(content))
    with pytest.raises(InputError, match="training.json: "):
        run_folder.training_of(path)


def test_the_data_are_named_by_fingerprint_and_an_unusual_reduction():
    pool = ImagePool(
        "omniglot", np.zeros((0, 1, 2, 2), np.uint8), (), {"preparation": "cubic-warped"}
    )
    assert code_state.data_state(pool) == {
        "data": pool.fingerprint[:16],
        "preparation": "cubic-warped",
    }
    assert code_state.data_state(replace(pool, about={})) == {"data": pool.fingerprint[:16]}
