"""What is said of the pile after learning on a graph."""

from types import SimpleNamespace

import numpy as np
import pytest

from semishot.estimator.by_graph import told


@pytest.mark.parametrize(
    ("used", "alone", "end"),
    [
        (True, 2, "2 are right with the pile and 2 without it: the pile is used"),
        (
            True,
            3,
            "2 are right with the pile and 3 without it, which is not clearly worse: the pile is used",
        ),
        (
            False,
            1,
            "1 is right without it, and with it their classes are clearly less probable: the pile does not "
            "help, labels alone",
        ),
    ],
)
def test_whether_the_pile_is_used_is_told_in_words(used, alone, end):
    held = SimpleNamespace(classes=np.array([0, 1, 1]))
    learned = SimpleNamespace(held_out=held, pile_used=used, right_alone=alone)
    right_twice = np.array([[0.9, 0.1], [0.2, 0.8], [0.7, 0.3]])
    assert told(learned, right_twice, True) == f"of 3 held-out labeled examples {end}"
