"""Importing what a person names as MODULE:CLASS, installed or in the working folder."""

import re
import sys
from importlib import import_module, invalidate_caches
from pathlib import Path
from typing import TypeVar

from semishot.errors import InputError, reason_of

T = TypeVar("T")
NAME = re.compile(r"([^\W\d]\w*(?:\.[^\W\d]\w*)*):([^\W\d]\w*)")
"""MODULE:CLASS."""


def import_named(name: str, derived_from: str, kind: type[T]) -> type[T]:
    """The class MODULE:CLASS, derived from `kind`, which messages call `derived_from`.

    Importing runs the code of its module.
    """
    if (parts := NAME.fullmatch(name)) is None:
        raise InputError(f"{name!r} is not a name of the form MODULE:CLASS")
    folder = str(Path.cwd())
    sys.path.append(folder)  # only for this import, and last: nothing installed is hidden by it
    invalidate_caches()
    try:
        module = import_module(parts[1])
    except Exception as error:
        raise InputError(
            f"cannot import {parts[1]!r} for {name!r} ({type(error).__name__}: {reason_of(error)}); it must "
            "be installed, or in the working folder"
        ) from error
    finally:
        if sys.path[-1:] == [folder]:  # unless the module has changed it
            sys.path.pop()
    named = getattr(module, parts[2], None)
    if not (isinstance(named, type) and issubclass(named, kind)):
        raise InputError(
            f"{name!r}: {parts[2]} is not a class of {parts[1]} derived from {derived_from}"
        )
    return named
