"""Events of `label`: whatever else is sent is refused."""

import pytest

from semishot.errors import InputError
from semishot.sorter.answer_events import checked


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        ([], "an event must be an object"),
        ({"kind": "drop"}, "kind must be one of"),
        ({"kind": "answer", "set": [1]}, "set must be a list"),
        ({"kind": "answer", "set": [[-2, [1]]]}, "answer must be a number"),
        ({"kind": "answer", "set": [[True, [1]]]}, "answer must be a number"),
        ({"kind": "answer", "set": [[0, "1"]]}, "images must be a list"),
        ({"kind": "answer", "set": [[0, [0.5]]]}, "image must be a number"),
        ({"kind": "delete", "class": "1"}, "class must be a number"),
        ({"kind": "merge", "class": 1}, "into must be a number"),
        ({"kind": "new", "name": " ", "images": []}, "has 1 to 100 characters"),
        ({"kind": "new", "name": "x" * 101, "images": []}, "has 1 to 100 characters"),
        ({"kind": "new", "name": "a\x1bb", "images": []}, "must be printable"),
        ({"kind": "new", "name": "Stranger", "images": []}, "cannot be called Stranger"),
        ({"kind": "new", "name": 3, "images": []}, "name must be text"),
        ({"kind": "reject", "value": 1}, "value must be between 0 and 1"),
    ],
)
def test_events_that_are_none_are_refused_in_one_line(event, reason):
    with pytest.raises(InputError, match=reason) as error:
        checked(event)
    assert "\n" not in str(error.value)
