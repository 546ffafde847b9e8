"""The routes of the page: what a browser may ask for, and what it is answered."""

import asyncio
import contextlib
import json
import sqlite3
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from semishot.errors import InputError, printable
from semishot.label import finish
from semishot.label.security import Guard, TooLargeError
from semishot.label.session import LabelingSession, NotReadyError
from semishot.label.thumbnails import Thumbnails, large_picture
from semishot.sorter.label_events import ConflictError
from semishot.sorter.labels import LostDatabaseError
from semishot.sorter.requests import How
from semishot.system.files import own_text, read_regular
from semishot.system.structs import decode, from_json
from semishot.system.tables import MOST_BYTES

T = TypeVar("T")
FOLDER = Path(__file__).parent
SCRIPTS = sorted(path.name for path in FOLDER.glob("*.js"))
PAGE = {
    "/": ("page.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    **{f"/{name}": (name, "text/javascript") for name in SCRIPTS},
}
MOST_FOUND, MOST_PROBLEMS = 200, 200
PICTURE_THREADS = 2
FOREVER = {"cache-control": "private, max-age=31536000, immutable"}
HEARTBEAT, PAUSE = 15.0, 0.25
"""Heartbeat interval of an open tab, and of looking whether the server stops, in seconds."""


class AnswerEnvelope(msgspec.Struct):
    """What comes with an answer: a key that a repeated request has again, and the pile it is for."""

    key: Annotated[str, msgspec.Meta(max_length=64, pattern=r"^[!-~]*\Z")] | None = None
    pile: str | None = None


class NamesRequest(msgspec.Struct):
    images: Annotated[list[int], msgspec.Meta(max_length=500)]


class SortingChoice(msgspec.Struct):
    """Which files are sorted, and how."""

    how: How = "copy"
    which: finish.Which = "all"
    version: int | None = None
    """Of the plan that a person has seen."""


class UnknownError(Exception):
    """No such image or table."""


STATUS: dict[type[Exception], int] = {
    UnknownError: 404,
    TooLargeError: 413,
    LostDatabaseError: 507,
    sqlite3.Error: 507,
    ConflictError: 409,
    NotReadyError: 503,
    InputError: 400,
    OSError: 400,
}
"""Exceptions of the routes -> the status of the answer; the first one that fits counts."""


async def refuse(request: Request, error: Exception) -> Response:
    """A status, and a line that the page shows."""
    status = next(STATUS[kind] for kind in STATUS if isinstance(error, kind))
    if status == 400 and request.method == "GET" and "image" in request.path_params:
        status = 404
    if isinstance(error, UnknownError):
        problem = "not found"
    elif isinstance(error, TooLargeError):
        problem = "the request is too large"
    elif isinstance(error, sqlite3.Error):
        problem = f"The answer cannot be written ({error})"
    else:
        problem = str(error if isinstance(error, InputError) else error.args[-1])
    return JSONResponse({"problem": printable(problem)}, status)


class Pages:
    """The routes, over one session."""

    def __init__(
        self, session: LabelingSession, thumbnails: Thumbnails, guard: Guard, base: str
    ) -> None:
        self.session, self.thumbnails, self.guard, self.base = session, thumbnails, guard, base
        self.images, self.request = session.images, session.reader.request
        self.pictures = ThreadPoolExecutor(PICTURE_THREADS, "pictures")
        self.work = ThreadPoolExecutor(1, "work")
        self.answers = ThreadPoolExecutor(1, "answers")  # they do not wait for a sorting
        self.tabs: set[asyncio.Event] = set()
        self.loop: asyncio.AbstractEventLoop | None = None
        self.ending: Callable[[], bool] = lambda: False
        """Whether the server is about to stop: streams of events end then, too."""

    def close(self) -> None:
        self.answers.shutdown()
        self.work.shutdown()
        self.pictures.shutdown(cancel_futures=True)

    def app(self) -> Starlette:
        @contextlib.asynccontextmanager
        async def lifespan(app: Starlette) -> AsyncIterator[None]:
            self.loop = asyncio.get_running_loop()
            yield

        routes = [
            *(Route(path, self.page) for path in PAGE),
            Route("/state", self.state),
            Route("/events", self.events),
            Route("/answer", self.answer, methods=["POST"]),
            Route("/thumb/{image:int}", self.thumb),
            Route("/large/{image:int}", self.large),
            Route("/names", self.names, methods=["POST"]),
            Route("/image/{image:int}", self.image),
            Route("/find", self.find),
            Route("/plan", self.plan),
            Route("/apply", self.apply, methods=["POST"]),
            Route("/undo", self.undo, methods=["POST"]),
            Route("/table/{name}", self.table),
            Route("/model", self.model, methods=["POST"]),
            Route("/invite", self.invite, methods=["POST"]),
        ]
        handlers: dict[Any, Any] = dict.fromkeys(STATUS, refuse)
        return Starlette(routes=routes, exception_handlers=handlers, lifespan=lifespan)

    def wake_tabs(self) -> None:
        """Tell the open tabs that there is something new; called from any thread."""
        if self.loop is not None and not self.loop.is_closed():
            with contextlib.suppress(RuntimeError):  # it is just closing
                self.loop.call_soon_threadsafe(self._set_all)

    def _set_all(self) -> None:
        for event in self.tabs:
            event.set()

    async def in_thread(self, pool: ThreadPoolExecutor, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(pool, work)

    async def page(self, request: Request) -> Response:
        name, kind = PAGE[request.url.path]
        return Response(own_text(FOLDER / name), media_type=f"{kind}; charset=utf-8")

    async def state(self, request: Request) -> Response:
        return Response(self.session.payload, media_type="application/octet-stream")

    async def events(self, request: Request) -> Response:
        return StreamingResponse(self._news(), media_type="text/event-stream")

    async def _news(self) -> AsyncIterator[str]:
        """What a tab must know to stay up to date: the version, and how far reading is."""
        changed, silent, session = asyncio.Event(), HEARTBEAT, self.session
        self.tabs.add(changed)
        try:
            while not self.ending():
                if changed.is_set() or silent >= HEARTBEAT:
                    changed.clear()
                    silent = 0.0
                    news = {
                        "epoch": session.epoch,
                        "version": session.predictions.version,
                        "progress": session.reader.progress._asdict(),
                        "problem": session.problem or session.import_problem,
                    }
                    yield f"data: {json.dumps(news)}\n\n"
                    await asyncio.sleep(0.02)  # several changes at once are one
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(changed.wait(), PAUSE)
                silent += PAUSE
        finally:
            self.tabs.discard(changed)

    async def answer(self, request: Request) -> Response:
        event = await read_json(request, dict[str, Any])
        fields = {name: event.pop(name) for name in ("key", "pile") if name in event}
        envelope = from_json(AnswerEnvelope, fields, "the request")
        if envelope.pile not in (None, self.session.store.name):
            raise ConflictError("this answer was given for another pile, and is dropped")
        version = await self.in_thread(
            self.answers, lambda: self.session.answer(event, envelope.key)
        )
        return _json({"event": version})

    def _digest(self, image: int) -> bytes:
        if not self.session.is_known(image):
            raise UnknownError
        return self.images.digest_of[image]

    async def thumb(self, request: Request) -> Response:
        image, path_of = request.path_params["image"], self.images.path_of
        digest = self._digest(image)
        data = await self.in_thread(
            self.pictures, lambda: self.thumbnails.small(image, path_of(image), digest)
        )
        return Response(data, media_type="image/jpeg", headers=FOREVER)

    async def large(self, request: Request) -> Response:
        image = request.path_params["image"]
        digest, path = self._digest(image), self.images.path_of(image)
        data = await self.in_thread(self.pictures, lambda: large_picture(path, digest))
        return Response(data, media_type="image/jpeg", headers=FOREVER)

    def _first_names(self, images: list[int]) -> dict[int, list[str]]:
        known = [image for image in images if self.session.is_known(image)]
        return {image: self.images.names_of(image)[:1] for image in known}

    async def names(self, request: Request) -> Response:
        """The first file of each of these images, by name."""
        return _json(self._first_names((await read_json(request, NamesRequest)).images))

    async def image(self, request: Request) -> Response:
        """All that is known of one image."""
        image = request.path_params["image"]
        self._digest(image)
        session, predictions = self.session, self.session.predictions
        row = self.images.row_of[image]
        shares: list[list[Any]] = []
        if predictions.probabilities is not None and row < len(predictions.probabilities):
            chances = predictions.probabilities[row] * (1 - predictions.stranger[row])
            pairs = zip(predictions.classes, chances.tolist(), strict=True)
            shares = sorted(([n, round(p, 4)] for n, p in pairs), key=lambda pair: -pair[1])[:6]
        excluded = session.store.state.excluded.get(image, frozenset())
        return _json(
            {"files": self.images.names_of(image), "shares": shares, "not": sorted(excluded)}
        )

    async def find(self, request: Request) -> Response:
        text = request.query_params.get("text", "")[:200].strip()
        images = self.images.find(text, MOST_FOUND) if text else []
        return _json({"images": images, "names": self._first_names(images)})

    async def plan(self, request: Request) -> Response:
        choice = from_json(SortingChoice, dict(request.query_params), "the request")
        return _json(
            await self.in_thread(
                self.work, lambda: finish.shown_plan(self.session, choice.how, choice.which)
            )
        )

    async def apply(self, request: Request) -> Response:
        choice = await read_json(request, SortingChoice)
        count, problems = await self.in_thread(
            self.work,
            lambda: finish.apply(self.session, choice.how, choice.which, choice.version),
        )
        self.session.dirty = True
        self.wake_tabs()
        return _json({"files": count, **_shown(problems)})

    async def undo(self, request: Request) -> Response:
        done = await self.in_thread(self.work, lambda: finish.undo_sorting(self.session))
        self.wake_tabs()
        return _json({"said": done.line(), "files": done.count, **_shown(done.problems)})

    async def table(self, request: Request) -> Response:
        """A table, written to OUT and handed to the browser."""
        name = request.path_params["name"]
        if name not in finish.TABLES:
            raise UnknownError
        choice = from_json(SortingChoice, dict(request.query_params), "the request")
        path = await self.in_thread(
            self.work, lambda: finish.write_table(self.session, name, choice.which)
        )
        headers = {"content-disposition": f'attachment; filename="{name}"'}
        content = read_regular(path, MOST_BYTES)
        return Response(content, media_type="text/csv; charset=utf-8", headers=headers)

    async def model(self, request: Request) -> Response:
        path = await self.in_thread(self.work, lambda: finish.save_model(self.session))
        return _json({"path": str(path)})

    async def invite(self, request: Request) -> Response:
        """An address for another browser, good once."""
        return _json({"address": f"{self.base}/?token={self.guard.token()}"})


async def read_json(request: Request, kind: type[T]) -> T:
    if request.headers.get("content-type", "").partition(";")[0] != "application/json":
        raise InputError("the request must be JSON")
    return decode(kind, await request.body(), "the request")


def _shown(problems: list[str]) -> dict[str, Any]:
    return {"problems": problems[:MOST_PROBLEMS], "more": max(0, len(problems) - MOST_PROBLEMS)}


def _json(value: Any) -> Response:
    """ASCII: a file name need not be UTF-8."""
    return Response(json.dumps(value), media_type="application/json")
