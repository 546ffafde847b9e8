"""JSON against dataclasses: right values become fields, wrong ones are named with what was expected."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from semishot.errors import InputError
from semishot.system.structs import decode, from_json, read_struct


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
    limit: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


RIGHT: dict[str, Any] = {"name": "a", "weight": 2, "part": {"size": 3}}


def test_fields_are_converted_and_absent_ones_have_their_defaults():
    assert from_json(Thing, RIGHT, "x.json") == Thing("a", 2, Part(3))
    more = {"parts": [{"size": 1}, {"size": 2, "kind": "flat"}], "limit": 5, "options": {"a": [1]}}
    made = from_json(Thing, {**RIGHT, **more}, "x.json")
    assert made == Thing("a", 2, Part(3), (Part(1), Part(2, "flat")), 5, {"a": [1]})


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], "expected `object`, got `array`"),
        ({"name": "a", "weight": 1.0}, "object missing required field `part`"),
        ({**RIGHT, "color": 3}, "unknown field color"),
        ({**RIGHT, "parts": [{"size": 3, "color": 3}]}, "unknown field parts[0].color"),
        ({**RIGHT, "name": 5}, "name: expected `str`, got `int`"),
        ({**RIGHT, "weight": True}, "weight: expected `float`, got `bool`"),
        ({**RIGHT, "part": {"size": 3, "kind": "x"}}, "part.kind: invalid enum value 'x'"),
        ({**RIGHT, "part": {"size": 0}}, "part: size must be at least 1, not 0"),
    ],
)
def test_a_wrong_field_is_named_with_what_was_expected(value, message):
    with pytest.raises(InputError) as caught:
        from_json(Thing, value, "x.json")
    assert str(caught.value) == f"x.json: {message}"


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[" * 100_000])
def test_what_is_not_json_gives_one_line(tmp_path, content):
    (tmp_path / "x.json").write_bytes(content)
    for read in (
        lambda: decode(Thing, content, "x.json"),
        lambda: read_struct(Thing, tmp_path / "x.json"),
    ):
        with pytest.raises(InputError, match=r"x\.json is not JSON: ") as caught:
            read()
        assert "\n" not in str(caught.value)
