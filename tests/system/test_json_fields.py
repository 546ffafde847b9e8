"""JSON against dataclasses: right values become fields, wrong ones are named with what was expected."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from semishot.errors import InputError
from semishot.system.json_fields import fits, from_json


@dataclass(frozen=True)
class Part:
    size: int
    kind: Literal["round", "flat"] = "round"

    def __post_init__(self) -> None:
        if self.size < 1:
            raise InputError(f"size must be at least 1, not {self.size}")


@dataclass(frozen=True)
class Thing:
    name: str
    weight: float
    part: Part
    parts: tuple[Part, ...] = ()
    ready: bool = False
    limit: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    shares: Mapping[str, float] = field(default_factory=dict)


RIGHT: dict[str, Any] = {"name": "a", "weight": 2, "part": {"size": 3}}


def test_fields_are_converted_and_absent_ones_have_their_defaults():
    assert from_json(Thing, RIGHT, "x.json") == Thing("a", 2, Part(3))
    more = {"parts": [{"size": 1}, {"size": 2, "kind": "flat"}], "ready": True, "limit": 5}
    more |= {"options": {"any": [1, {"thing": None}]}, "shares": {"b": 0.5}}
    made = from_json(Thing, json.loads(json.dumps({**RIGHT, **more})), "x.json")
    assert made.parts == (Part(1), Part(2, "flat"))
    assert (made.ready, made.limit) == (True, 5)
    assert made.options == {"any": [1, {"thing": None}]}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], "it must be an object, not []"),
        ({"name": "a", "weight": 1.0}, "part is missing"),
        ({**RIGHT, "color": 3}, "unknown field color"),
        ({**RIGHT, "part": {"size": 3, "color": 3}}, "unknown field part.color"),
        ({**RIGHT, "part": {}}, "part.size is missing"),
        ({**RIGHT, "part": 3}, "part must be an object, not 3"),
        ({**RIGHT, "name": 5}, "name must be a string, not 5"),
        ({**RIGHT, "weight": "2"}, "weight must be a finite number, not '2'"),
        ({**RIGHT, "weight": True}, "weight must be a finite number, not True"),
        ({**RIGHT, "weight": float("nan")}, "weight must be a finite number, not nan"),
        ({**RIGHT, "weight": 10**400}, f"weight must be a finite number, not {'1' + '0' * 39}"),
        ({**RIGHT, "part": {"size": True}}, "part.size must be an integer, not True"),
        ({**RIGHT, "part": {"size": 2.0}}, "part.size must be an integer, not 2.0"),
        ({**RIGHT, "part": {"size": 0}}, "size must be at least 1, not 0"),
        ({**RIGHT, "parts": {"size": 1}}, "parts must be a list, not {'size': 1}"),
        (
            {**RIGHT, "parts": [{"size": 1}, {"size": 2, "kind": []}]},
            "parts[1].kind must be one of round, flat, not []",
        ),
        ({**RIGHT, "ready": 1}, "ready must be true or false, not 1"),
        ({**RIGHT, "limit": "no"}, "limit must be an integer or null, not 'no'"),
        ({**RIGHT, "options": []}, "options must be an object, not []"),
        ({**RIGHT, "shares": {"a": "b"}}, "shares must be an object, not {'a': 'b'}"),
    ],
)
def test_a_wrong_field_is_named_with_what_was_expected(value, message):
    with pytest.raises(InputError) as caught:
        from_json(Thing, value, "x.json")
    assert str(caught.value).startswith("x.json: ")
    assert str(caught.value).removeprefix("x.json: ").removeprefix("x.json: ") == message


def test_plain_types_can_be_tested_alone():
    assert fits(3, int)
    assert fits(3, float)
    assert not fits(None, float)
    assert not fits(True, float)
    assert fits(True, float | bool)
    assert not fits(False, int)
    assert fits({}, dict)
    assert not fits([], dict)
