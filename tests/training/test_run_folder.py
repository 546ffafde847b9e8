"""Where numbers come from: the digest of the code, the parts of a training, the data."""

import json
from dataclasses import replace

import numpy as np
import pytest

from semishot.data.pool import ImagePool
from semishot.errors import InputError
from semishot.training import run_folder


def test_a_code_state_is_a_digest_of_files_that_make_numbers(monkeypatch):
    seen = []
    monkeypatch.setattr(
        run_folder.provenance, "source_digest", lambda p: seen.extend(p) or "0" * 12
    )
    run_folder.code_state.__wrapped__()
    names = {path.relative_to(run_folder.PACKAGE).as_posix() for path in seen}
    assert names >= {"prototypes.py", "data/splits.py", "refine/oslo.py", "training/update.py"}
    assert names >= {"network/fused/adam.py", "paper/table5.py"}
    rooms = {name.split("/")[0] for name in names}
    assert not rooms & {"label", "sorter", "report", "commands", "datasets", "workers", "system"}


def test_parts_of_a_training_add_up_and_name_each_device_and_code(tmp_path, monkeypatch):
    path = tmp_path / run_folder.TRAINING_FILE
    assert run_folder.training_of(path) == {}
    ticks = iter([10.0, 11.5, 14.0, 0.0, 2.0])
    monkeypatch.setattr(run_folder.time, "monotonic", lambda: next(ticks))
    monkeypatch.setattr(run_folder, "code_state", lambda: {"code": "one", "commit": "c"})
    first = run_folder.SessionLog(tmp_path, "a GPU")
    first.save()
    assert run_folder.training_of(path)["training"]["seconds"] == 1.5
    first.save()
    monkeypatch.setattr(run_folder, "code_state", lambda: {"code": "two"})
    run_folder.SessionLog(tmp_path, "a GPU", run_folder.training_of(path)["training"]).save()
    expected = {"code": "one + two", "commit": "c + ", "device": "a GPU", "date": first.date}
    assert run_folder.training_of(path)["training"] == {**expected, "seconds": 6.0}


@pytest.mark.parametrize("content", [[], {"code": 3}, {}])
def test_a_damaged_file_of_a_training_is_named(content, tmp_path):
    path = tmp_path / run_folder.TRAINING_FILE
    path.write_text(json.dumps(content))
    with pytest.raises(InputError, match="training.json: "):
        run_folder.training_of(path)


def test_the_data_are_named_by_fingerprint_and_an_unusual_reduction():
    unusual = {"preparation": "cubic-warped"}
    pool = ImagePool("omniglot", np.zeros((0, 1, 2, 2), np.uint8), (), unusual)
    data = {"data": pool.fingerprint[:16]}
    assert run_folder.data_state(pool) == {**data, **unusual}
    assert run_folder.data_state(replace(pool, about={})) == data
