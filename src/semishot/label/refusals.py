"""Errors of the routes -> a status, and a line that the page shows."""

import sqlite3

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from semishot.errors import InputError, printable
from semishot.label.security import TooLargeError
from semishot.label.session import NotReadyError
from semishot.sorter.answer_state import ConflictError
from semishot.sorter.labels_database import LostDatabaseError


class UnknownError(Exception):
    """No such image or table."""


REFUSED = (InputError, UnknownError, TooLargeError, OSError, sqlite3.Error)
"""What `refuse` answers."""
STATUS: dict[type[Exception], int] = {
    UnknownError: 404,
    TooLargeError: 413,
    sqlite3.Error: 507,
    LostDatabaseError: 507,
    ConflictError: 409,
    NotReadyError: 503,
}
"""Of the others it is 400."""


async def refuse(request: Request, error: Exception) -> Response:
    status = next((STATUS[kind] for kind in STATUS if isinstance(error, kind)), 400)
    if isinstance(error, InputError) and request.method == "GET" and "image" in request.path_params:
        status = 404
    return JSONResponse({"problem": _problem(error)}, status)


def _problem(error: Exception) -> str:
    if isinstance(error, UnknownError):
        return "there is no such thing"
    if isinstance(error, TooLargeError):
        return "the request is too large"
    if isinstance(error, sqlite3.Error):
        return f"The answer cannot be written ({printable(str(error))})"
    return printable(str(error if isinstance(error, InputError) else error.args[-1]))
