"""The routes of the page: what a browser may ask for, and what it is answered."""

import hashlib
import json
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from semishot.data.decoding import opened, quiet
from semishot.data.thumbnails import thumbnail
from semishot.errors import InputError, printable
from semishot.label import finish
from semishot.label.pile import ImageFilter
from semishot.label.session import LabelingSession, NotReadyError
from semishot.sorter.audit import audit_event
from semishot.sorter.label_events import ConflictError, read_event
from semishot.sorter.labels import LostDatabaseError
from semishot.sorter.moving.move_files import undo
from semishot.sorter.requests import How
from semishot.system.files import own_text
from semishot.system.structs import decode, from_json

T = TypeVar("T")
Json = dict[str, Any]
FOLDER = Path(__file__).parent
SCRIPTS = sorted(path.name for path in FOLDER.glob("*.js"))
PAGE = {
    "/": (FOLDER / "page.html", "text/html"),
    "/page.css": (FOLDER / "page.css", "text/css"),
    "/look.css": (Path("sorter/look.css"), "text/css"),
    **{f"/{name}": (FOLDER / name, "text/javascript") for name in SCRIPTS},
}
SIZES = {"thumb": (320, 80), "large": (2048, 88)}
"""Pixels of the longer side of a picture, and quality of its JPEG."""
MOST_BODY = 8 * 2**20
"""Bytes of a request: 100,000 images in one answer take one."""
MOST_SKIPPED, MOST_PROBLEMS, MOST_SHARES = 2000, 200, 6
PICTURES_AT_ONCE = 2
PATIENCE = 1.0
"""Seconds to wait for new predictions; then the page asks again."""
FOREVER = {"cache-control": "private, max-age=31536000, immutable"}
STATUS: dict[type[Exception], int] = {
    LostDatabaseError: 507,
    sqlite3.Error: 507,
    ConflictError: 409,
    NotReadyError: 503,
    InputError: 400,
    OSError: 400,
}
"""Exceptions of the routes -> the status of the answer; the first one that fits counts."""


class NamesRequest(msgspec.Struct):
    """Images whose files are to be named."""

    images: Annotated[list[int], msgspec.Meta(max_length=500)]


class SortingChoice(msgspec.Struct):
    """Which files are sorted, and how."""

    how: How = "copy"
    which: finish.Which = "all"
    version: int | None = None
    """Of the plan that a person has seen."""


async def refuse(request: Request, error: Exception) -> Response:
    """A status, and a line that the page shows."""
    status = next(STATUS[kind] for kind in STATUS if isinstance(error, kind))
    if isinstance(error, sqlite3.Error):
        problem = f"The answer cannot be written ({error})"
    else:
        problem = str(error if isinstance(error, InputError) else error.args[-1])
    return JSONResponse({"problem": printable(problem)}, status)


class Pages:
    """The routes, over one session. Starlette runs those that are not `async` in threads."""

    def __init__(self, session: LabelingSession, invite: Callable[[], str]) -> None:
        """invite: makes an address for another browser, good once."""
        self.session, self.pile, self.invite = session, session.pile, invite
        self.drawing = threading.Semaphore(PICTURES_AT_ONCE)

    def routes(self) -> list[Route]:
        return [
            *(Route(path, self.page) for path in PAGE),
            *(Route(f"/{size}/{{image:int}}", self.picture) for size in SIZES),
            Route("/state", self.state),
            Route("/state/{event:int}", self.state),
            Route("/news/{version:int}", self.news),
            Route("/image/{image:int}", self.image),
            Route("/find", self.find),
            Route("/files", self.files),
            Route("/map", self.map),
            Route("/plan", self.plan),
            Route("/table/{name}", self.table),
            posted("/answer", Json, self.answer),
            posted("/names", NamesRequest, self.names),
            posted("/audit", Json, self.audit),
            posted("/apply", SortingChoice, self.apply),
            posted("/undo", Json, self.undo),
            posted("/keywords", SortingChoice, self.keywords),
            posted("/model", Json, lambda _: {"path": str(finish.save_model(self.session))}),
            posted("/invite", Json, lambda _: {"address": self.invite()}),
        ]

    async def page(self, request: Request) -> Response:
        path, kind = PAGE[request.url.path]
        return Response(own_text(path), media_type=f"{kind}; charset=utf-8")

    def state(self, request: Request) -> Response:
        """The predictions, once they take this event into account, or after a while."""
        session, event = self.session, request.path_params.get("event", 0)
        session.wait_until(lambda: session.predictions.event >= event, PATIENCE)
        return Response(session.payload, media_type="application/octet-stream")

    def news(self, request: Request) -> Response:
        """A version newer than this one, or after a while the same; and how far reading is."""
        session, version = self.session, request.path_params["version"]
        session.wait_until(lambda: session.version > version, PATIENCE)
        return _json(
            {
                "epoch": session.epoch,
                "version": session.version,
                "progress": self.pile.progress._asdict(),
                "problem": session.problem,
            }
        )

    def answer(self, event: Json) -> Json:
        """key: a repeated request has it again. pile: the one it is for, by the name of its store."""
        key, pile = (event.pop(name, None) for name in ("key", "pile"))
        if pile not in (None, self.session.store.name):
            raise ConflictError("this answer was given for another pile, and is dropped")
        return {"event": self.session.answer(read_event(event), key and str(key))}

    def _requested(self, request: Request) -> int:
        """An image of this pile."""
        image: int = request.path_params["image"]
        if not self.session.is_known(image):
            raise HTTPException(404)
        return image

    def picture(self, request: Request) -> Response:
        """A JPEG without metadata such as place and time; the file must have the content of the image."""
        from semishot.sorter.embedding import read_image

        image = self._requested(request)
        side, quality = SIZES[request.url.path.split("/")[1]]
        if (path := self.pile.path_of(image)) is None:
            raise InputError("its file is gone")
        with self.drawing, quiet():
            data = read_image(path)
            if hashlib.sha256(data).digest() != self.pile.digest_of[image]:
                raise InputError("its file has changed")
            with opened(data, "it") as picture:
                jpeg = thumbnail(picture, side, quality, optimize=False)
        return Response(jpeg, media_type="image/jpeg", headers=FOREVER)

    def names(self, body: NamesRequest) -> dict[int, list[str]]:
        """The first file of each of these images, by name."""
        known = (image for image in body.images if self.session.is_known(image))
        return {image: self.pile.names_of(image)[:1] for image in known}

    def image(self, request: Request) -> Response:
        """All that is known of one image."""
        image, known = self._requested(request), self.session.predictions
        shares, row = list[tuple[int, float]](), known.rows.row_of.get(image)
        if known.joint is not None and row is not None:
            chances = known.joint[row, :-1].round(4).tolist()
            pairs = zip(known.learned, chances, strict=True)
            shares = sorted(pairs, key=lambda pair: -pair[1])[:MOST_SHARES]
        return _json({"files": self.pile.names_of(image), "shares": shares})

    def find(self, request: Request) -> Response:
        """The images that fit."""
        wanted = from_json(ImageFilter, dict(request.query_params), "the request")
        return _json({"images": self.pile.find(wanted)})

    def files(self, request: Request) -> Response:
        """The folders of the pile, and the files that are skipped."""
        skipped = sorted((self.pile.shown(n), why) for n, why in [*self.pile.skipped.items()])
        return _json({"folders": self.pile.folders(), "skipped": skipped[:MOST_SKIPPED]})

    def map(self, request: Request) -> Response:
        """The place of every row on the map."""
        return Response(self.session.places(), media_type="application/octet-stream")

    def audit(self, body: Json) -> dict[str, int]:
        """Begin an audit of what is decided now."""
        return {"event": self.session.answer(audit_event(self.session.decisions()))}

    def plan(self, request: Request) -> Response:
        choice = _choice(request)
        return _json(finish.shown_plan(self.session, choice.how, choice.which))

    def apply(self, choice: SortingChoice) -> Json:
        count, problems = finish.apply(self.session, choice.how, choice.which, choice.version)
        return {"files": count, **_shown(problems)}

    def undo(self, body: Json) -> Json:
        done = undo(self.pile.request.folder, self.pile.request.pile)
        self.pile.look_again.set()
        return {"said": done.undone(), "files": done.count, **_shown(done.problems)}

    def table(self, request: Request) -> Response:
        """A table, written to OUT and handed to the browser."""
        name = request.path_params["name"]
        if name not in finish.TABLES:
            raise HTTPException(404)
        content = finish.write_table(self.session, name, _choice(request).which)
        headers = {"content-disposition": f'attachment; filename="{name}"'}
        kind = "application/json" if name.endswith(".json") else "text/csv; charset=utf-8"
        return Response(content, media_type=kind, headers=headers)

    def keywords(self, choice: SortingChoice) -> Json:
        path, count = finish.write_keywords(self.session, choice.which)
        return {"path": str(path), "files": count}


def posted(path: str, kind: type[T], work: Callable[[T], Any]) -> Route:
    """A route that takes JSON of this kind, works on it in a thread, and answers with JSON."""

    async def endpoint(request: Request) -> Response:
        if request.headers.get("content-type", "").partition(";")[0] != "application/json":
            raise InputError("the request must be JSON")
        if int(request.headers.get("content-length", 0)) > MOST_BODY:
            raise HTTPException(413)
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > MOST_BODY:
                raise HTTPException(413)
        return _json(await run_in_threadpool(work, decode(kind, bytes(body), "the request")))

    return Route(path, endpoint, methods=["POST"])


def _choice(request: Request) -> SortingChoice:
    return from_json(SortingChoice, dict(request.query_params), "the request")


def _shown(problems: list[str]) -> Json:
    return {"problems": problems[:MOST_PROBLEMS], "more": max(0, len(problems) - MOST_PROBLEMS)}


def _json(value: Any) -> Response:
    """ASCII: a file name need not be UTF-8."""
    return Response(json.dumps(value), media_type="application/json")
