"""How a recipe was chosen on validation classes: the content of `choice.json`, checked."""

from pathlib import Path
from typing import Any, TypedDict

from semishot.system.json_fields import from_json


class ChoiceVariant(TypedDict):
    """One recipe that was tried, with its accuracies in %."""

    round: int
    change: str
    accuracy_0: float
    half_range_0: float
    accuracy_5: float
    half_range_5: float


class Choice(TypedDict):
    """How a recipe was chosen on validation classes: `choice.json`."""

    title: str
    about: str
    variants: list[ChoiceVariant]
    device: str
    versions: str
    date: str
    again: str


def as_choice(content: Any, path: Path) -> Choice:
    """The content of `choice.json`, checked."""
    return from_json(Choice, content, f"{path} is not the record of a choice")
