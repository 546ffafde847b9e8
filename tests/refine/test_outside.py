"""Methods outside the package: imported when a person names them, and only then."""

import re
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from semishot import refine
from semishot.errors import InputError
from support.own_methods import own_module
from support.tensors import randn


@pytest.fixture
def own(tmp_path):
    with own_module(tmp_path) as name:
        yield name


def test_a_method_of_the_working_folder_is_built_by_module_and_class(own):
    paths = list(sys.path)
    name = refine.add(f"{own}:Halved")
    assert name == f"{own}:Halved"
    assert refine.added() == [name]
    assert sys.path == paths  # nothing else is imported from the working folder
    method = refine.build(name, start=0.0).double()
    u, p = randn(7, 4), randn(3, 4, seed=1)
    assert torch.allclose(method(u, p), refine.build("soft_kmeans")(u, p) / 2)
    assert refine.build(name, runs=2).logit.shape == (2,)
    assert name not in refine.names()


def test_a_name_alone_imports_nothing(own):
    for use in (refine.resolve, refine.build):
        with pytest.raises(InputError, match=rf"'{own}:Halved' is not part of semishot.*--allow"):
            use(f"{own}:Halved")
    assert own not in sys.modules
    assert not Path("imported").exists()


def test_what_is_installed_comes_before_the_working_folder(tmp_path):
    with (
        own_module(tmp_path, "colorsys"),
        pytest.raises(InputError, match="Halved is not a class of colorsys"),
    ):
        refine.add("colorsys:Halved")
    assert not (tmp_path / "imported").exists()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("{}:Nothing", "'{}:Nothing': Nothing is not a class of {} derived from nn.Module"),
        ("{}:function", "function is not a class of {} derived from nn.Module"),
        ("{}:torch", "torch is not a class of {}"),
        (
            "no_such_module:A",
            r"cannot import 'no_such_module' .*No module named.*; it must be inst",
        ),
        ("{}:A:B", "'{}:A:B' is not a name of the form MODULE:CLASS"),
        (".{}:A", "is not a name of the form MODULE:CLASS"),
        ("fails_for_a_test:A", r"'fails_for_a_test' for .*\(ValueError: one two\)"),
    ],
)
def test_what_cannot_be_imported_is_one_line(own, name, message):
    Path("fails_for_a_test.py").write_text('raise ValueError("one\\ntwo")\n')
    with pytest.raises(InputError, match=message.format(own, own)) as raised:
        refine.add(name.format(own))
    assert "\n" not in str(raised.value)
    assert refine.added() == []


class Returns(nn.Module):
    """A method whose weights are what it was given."""

    def __init__(self, weights):
        super().__init__()
        self.weights = weights

    def forward(self, unlabeled, prototypes):
        return self.weights


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (None, "returned NoneType, not weights (2, 7, 3)"),
        (
            torch.zeros(2, 3, 7),
            "weights (2, 3, 7), not (2, 7, 3): one for each of 7 unlabeled exam",
        ),
        (torch.zeros(2, 7, 4), "weights (2, 7, 4), not (2, 7, 3)"),
        (torch.zeros(2, 7, 3).double(), "weights of torch.float64; its inputs are torch.float32"),
        (torch.zeros(2, 7, 3).log(), "NaN or infinity: 42 of 42 weights (2, 7, 3)"),
    ],
)
def test_weights_that_cannot_be_used_are_one_line_with_the_name_of_the_method(weights, message):
    u, p = torch.zeros(2, 7, 4), torch.ones(2, 3, 4)
    labels = torch.eye(3).expand(2, 3, 3)
    with pytest.raises(InputError, match=re.escape(message)) as raised:
        refine.refined_prototypes(Returns(weights), p, labels, u)
    assert f"the refiner {__name__}:Returns returned" in str(raised.value)
