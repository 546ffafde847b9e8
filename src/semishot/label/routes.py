"""The routes of the page: what a browser may ask for, and what it is answered."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from semishot.errors import InputError
from semishot.label import finish
from semishot.label.open_tabs import OpenTabs
from semishot.label.refusals import REFUSED, UnknownError, refuse
from semishot.label.security import Guard
from semishot.label.session import Session
from semishot.label.thumbnails import LARGE_QUALITY, LARGE_SIDE, Thumbnails, view
from semishot.sorter.answer_state import ConflictError
from semishot.sorter.moving.journal import SORTED, undo_command
from semishot.system.files import own_text, read_regular, real_path
from semishot.system.tables import MOST_BYTES

T = TypeVar("T")
FOLDER = Path(__file__).parent
SCRIPTS = sorted(
    path.relative_to(FOLDER).as_posix()
    for path in [*FOLDER.glob("*.js"), *FOLDER.glob("dialogs/*.js")]
)
PAGE = {
    "/": ("page.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    **{f"/{name}": (name, "text/javascript") for name in SCRIPTS},
}
MOST_NAMES, MOST_FOUND, MOST_SHOWN = 500, 200, 200
THREADS = 2
FOREVER = {"cache-control": "private, max-age=31536000, immutable"}


class Pages:
    """The routes, over one session."""

    def __init__(self, session: Session, thumbnails: Thumbnails, guard: Guard, base: str) -> None:
        self.session, self.thumbnails, self.guard, self.base = session, thumbnails, guard, base
        self.tabs = OpenTabs(session)
        self.pictures = ThreadPoolExecutor(THREADS, "pictures")
        self.work = ThreadPoolExecutor(1, "work")
        self.answers = ThreadPoolExecutor(1, "answers")  # they do not wait for a sorting

    def close(self) -> None:
        self.answers.shutdown()
        self.work.shutdown()
        self.pictures.shutdown(cancel_futures=True)

    def routes(self) -> list[Route]:
        pages = [Route(path, self.page) for path in PAGE]
        return [
            *pages,
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

    async def in_thread(self, pool: ThreadPoolExecutor, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(pool, work)

    async def page(self, request: Request) -> Response:
        name, kind = PAGE[request.url.path]
        return Response(own_text(FOLDER / name), media_type=f"{kind}; charset=utf-8")

    async def state(self, request: Request) -> Response:
        self.session.reader.wait_for_page.set()
        return Response(self.session.payload, media_type="application/octet-stream")

    async def events(self, request: Request) -> Response:
        return StreamingResponse(self.tabs.events(), media_type="text/event-stream")

    async def answer(self, request: Request) -> Response:
        body = await read_json(request)
        key, pile = body.pop("key", None), body.pop("pile", None)
        if key is not None and not (isinstance(key, str) and key.isascii() and len(key) <= 64):
            raise InputError("key must be a short text of ASCII characters")
        if pile is not None and pile != self.session.answers.database.name:
            raise ConflictError("this answer was given for another pile, and is dropped")
        version = await self.in_thread(self.answers, lambda: self.session.answer(body, key))
        return JSONResponse({"event": version})

    def _known(self, image: int) -> bytes:
        digest = self.session.rows.digest_of.get(image)
        if digest is None or not self.session.is_known(image):
            raise UnknownError
        return digest

    async def thumb(self, request: Request) -> Response:
        image = request.path_params["image"]
        digest, rows = self._known(image), self.session.rows
        data = await self.in_thread(
            self.pictures, lambda: self.thumbnails.small(image, rows.path_of(image), digest)
        )
        return Response(data, media_type="image/jpeg", headers=FOREVER)

    async def large(self, request: Request) -> Response:
        image = request.path_params["image"]
        digest, path = self._known(image), self.session.rows.path_of(image)
        data = await self.in_thread(
            self.pictures, lambda: view(path, digest, LARGE_SIDE, LARGE_QUALITY)
        )
        return Response(data, media_type="image/jpeg", headers=FOREVER)

    async def names(self, request: Request) -> Response:
        """The first file of each of these images, by name."""
        images = (await read_json(request)).get("images")
        if not isinstance(images, list) or len(images) > MOST_NAMES:
            raise InputError(f"images must be a list of at most {MOST_NAMES}")
        known = self.session.is_known
        wanted = [image for image in images if isinstance(image, int) and known(image)]
        return _json({image: self.session.rows.names_of(image)[:1] for image in wanted})

    async def image(self, request: Request) -> Response:
        """All that is known of one image."""
        image = request.path_params["image"]
        self._known(image)
        session, snapshot = self.session, self.session.snapshot
        row = session.rows.row_of.get(image, len(snapshot.images))
        shares: list[list[Any]] = []
        if snapshot.probabilities is not None and row < len(snapshot.probabilities):
            held = snapshot.probabilities[row] * (1 - snapshot.stranger[row])
            pairs = zip(snapshot.classes, held.tolist(), strict=True)
            shares = sorted(([n, round(p, 4)] for n, p in pairs), key=lambda pair: -pair[1])[:6]
        excluded = session.answers.state.excluded.get(image, frozenset())
        return _json(
            {"files": session.rows.names_of(image), "shares": shares, "not": sorted(excluded)}
        )

    async def find(self, request: Request) -> Response:
        text = request.query_params.get("text", "")[:200].strip()
        found = self.session.rows.find(text, MOST_FOUND) if text else []
        names = {image: self.session.rows.names_of(image)[:1] for image in found}
        return _json({"images": found, "names": names})

    async def plan(self, request: Request) -> Response:
        how, which = _how(request.query_params), _which(request.query_params)
        session = self.session
        found = await self.in_thread(self.work, lambda: finish.plan(session, how, which))
        out = session.reader.request.folder
        return _json(
            {
                "folders": found.folders,
                "left": found.left,
                "links": found.links,
                "files": len(found.wanted),
                "bytes": found.bytes,
                "free": finish.free_bytes(out),
                "out": str(real_path(out) / SORTED),
                "pile": str(real_path(session.reader.request.pile)),
                "sorting": finish.sorting_of(session),
                "command": undo_command(out, session.reader.request.pile),
                "version": found.version,
            }
        )

    async def apply(self, request: Request) -> Response:
        body = await read_json(request)
        how, which, shown = _how(body), _which(body), body.get("version")
        count, problems = await self.in_thread(
            self.work, lambda: finish.apply(self.session, how, which, shown)
        )
        self.session.dirty = True
        self.tabs.tell()
        return _json({"files": count, **_shown(problems)})

    async def undo(self, request: Request) -> Response:
        done = await self.in_thread(self.work, lambda: finish.undo_sorting(self.session))
        self.tabs.tell()
        return _json({"said": done.line(), "files": done.count, **_shown(done.problems)})

    async def table(self, request: Request) -> Response:
        """A table, written to OUT and handed to the browser."""
        name, which = request.path_params["name"], _which(request.query_params)
        if name not in finish.TABLES:
            raise UnknownError
        path = await self.in_thread(
            self.work, lambda: finish.write_table(self.session, name, which)
        )
        headers = {"content-disposition": f'attachment; filename="{name}"'}
        return Response(
            read_regular(path, MOST_BYTES),
            media_type="text/csv; charset=utf-8",
            headers=headers,
        )

    async def model(self, request: Request) -> Response:
        path = await self.in_thread(self.work, lambda: finish.save_model(self.session))
        return _json({"path": str(path)})

    async def invite(self, request: Request) -> Response:
        """An address for another browser, good once."""
        return _json({"address": f"{self.base}/?token={self.guard.token()}"})


def app_of(pages: Pages) -> Starlette:
    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        pages.tabs.loop = asyncio.get_running_loop()
        yield

    handlers: dict[Any, Any] = dict.fromkeys(REFUSED, refuse)
    return Starlette(routes=pages.routes(), exception_handlers=handlers, lifespan=lifespan)


async def read_json(request: Request) -> dict[str, Any]:
    if request.headers.get("content-type", "").partition(";")[0] != "application/json":
        raise InputError("the request must be JSON")
    try:
        body = json.loads(await request.body())
    except (ValueError, RecursionError) as error:
        raise InputError("the request must be JSON") from error
    if not isinstance(body, dict):
        raise InputError("the request must be a JSON object")
    return body


def _shown(problems: list[str]) -> dict[str, Any]:
    return {"problems": problems[:MOST_SHOWN], "more": max(0, len(problems) - MOST_SHOWN)}


def _json(value: Any) -> Response:
    """ASCII: a file name need not be UTF-8."""
    return Response(json.dumps(value), media_type="application/json")


def _how(values: Any) -> Any:
    if (how := values.get("how")) not in ("copy", "move", "link"):
        raise InputError("how must be copy, move or link")
    return how


def _which(values: Any) -> Any:
    if (which := values.get("which", "all")) not in ("all", "confirmed"):
        raise InputError("which must be all or confirmed")
    return which
