"""The server of the page: routes, events for open tabs, and starting and ending it all."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import sqlite3
import sys
import threading
import webbrowser
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from semishot.errors import InputError, printable
from semishot.label import finish
from semishot.label.catalog import Catalog
from semishot.label.images import PATIENCE, Library, check_folders, list_files
from semishot.label.requests import LabelRequest
from semishot.label.security import Doorkeeper, Guard, TooLargeError, is_loopback
from semishot.label.session import NotReadyError, Session
from semishot.label.thumbnails import LARGE_QUALITY, LARGE_SIDE, Thumbnails, view
from semishot.sorter.answers import (
    DATABASE,
    Answers,
    ConflictError,
    Database,
    LostDatabaseError,
    open_database,
)
from semishot.sorter.journal import SORTED, undo_command
from semishot.system.locks import MOST_SHOWN, holder_of, lock_file
from semishot.system.open_files import own_text, read_regular
from semishot.system.real_paths import real_path
from semishot.system.tables import MOST_BYTES

__all__ = ["label"]

T = TypeVar("T")
FOLDER = Path(__file__).parent
PAGE = {
    "/": ("page.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
    "/grid.js": ("grid.js", "text/javascript"),
    "/state.js": ("state.js", "text/javascript"),
    "/dialogs.js": ("dialogs.js", "text/javascript"),
}
LOCK = ".label.lock"
MOST_NAMES, MOST_FOUND = 500, 200
BEAT, PAUSE = 15.0, 0.25
"""Seconds between two signs of life to an open tab, and between two looks at whether the server ends."""
THREADS = 2
FOREVER = {"cache-control": "private, max-age=31536000, immutable"}


class Pages:
    """The routes, over one session."""

    def __init__(self, session: Session, thumbnails: Thumbnails, guard: Guard, base: str) -> None:
        self.session, self.thumbnails, self.guard, self.base = session, thumbnails, guard, base
        self.pictures = ThreadPoolExecutor(THREADS, "pictures")
        self.work = ThreadPoolExecutor(1, "work")
        self.answers = ThreadPoolExecutor(1, "answers")  # they do not wait for a sorting
        self.waiting: set[asyncio.Event] = set()
        self.loop: asyncio.AbstractEventLoop | None = None
        self.ending: Callable[[], bool] = lambda: False
        """Whether the server is about to end: streams end then, too."""

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
        self.session.library.wait_for_page.set()
        return Response(self.session.payload, media_type="application/octet-stream")

    async def events(self, request: Request) -> Response:
        return StreamingResponse(self._events(), media_type="text/event-stream")

    async def _events(self) -> AsyncIterator[str]:
        """What a tab must know to stay up to date: the version, and how far reading is."""
        changed = asyncio.Event()
        self.waiting.add(changed)
        silent = BEAT
        try:
            while not self.ending():
                if changed.is_set() or silent >= BEAT:
                    changed.clear()
                    silent = 0.0
                    yield f"data: {json.dumps(self.about())}\n\n"
                    await asyncio.sleep(0.02)  # several changes at once are one
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(changed.wait(), PAUSE)
                silent += PAUSE
        finally:
            self.waiting.discard(changed)

    def about(self) -> dict[str, Any]:
        session = self.session
        return {
            "epoch": session.epoch,
            "version": session.snapshot.version,
            "progress": session.library.progress._asdict(),
            "problem": session.problem or session.outside_labels.problem,
        }

    def tell(self) -> None:
        """Wake the open tabs; called from any thread."""
        if self.loop is not None and not self.loop.is_closed():
            with contextlib.suppress(RuntimeError):  # it is just closing
                self.loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        for event in self.waiting:
            event.set()

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
        digest = self.session.library.digest_of.get(image)
        if digest is None or not self.session.is_known(image):
            raise UnknownError
        return digest

    async def thumb(self, request: Request) -> Response:
        image = request.path_params["image"]
        digest, library = self._known(image), self.session.library
        data = await self.in_thread(
            self.pictures, lambda: self.thumbnails.small(image, library.path_of(image), digest)
        )
        return Response(data, media_type="image/jpeg", headers=FOREVER)

    async def large(self, request: Request) -> Response:
        image = request.path_params["image"]
        digest, path = self._known(image), self.session.library.path_of(image)
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
        return _json({image: self.session.library.names_of(image)[:1] for image in wanted})

    async def image(self, request: Request) -> Response:
        """All that is known of one image."""
        image = request.path_params["image"]
        self._known(image)
        session, snapshot = self.session, self.session.snapshot
        row = session.library.rows.row_of.get(image, len(snapshot.images))
        shares: list[list[Any]] = []
        if snapshot.probabilities is not None and row < len(snapshot.probabilities):
            held = snapshot.probabilities[row] * (1 - snapshot.stranger[row])
            pairs = zip(snapshot.classes, held.tolist(), strict=True)
            shares = sorted(([n, round(p, 4)] for n, p in pairs), key=lambda pair: -pair[1])[:6]
        excluded = session.answers.state.excluded.get(image, frozenset())
        return _json(
            {"files": session.library.names_of(image), "shares": shares, "not": sorted(excluded)}
        )

    async def find(self, request: Request) -> Response:
        text = request.query_params.get("text", "")[:200].strip()
        found = self.session.library.find(text, MOST_FOUND) if text else []
        names = {image: self.session.library.names_of(image)[:1] for image in found}
        return _json({"images": found, "names": names})

    async def plan(self, request: Request) -> Response:
        how, which = _how(request.query_params), _which(request.query_params)
        session = self.session
        found = await self.in_thread(self.work, lambda: finish.plan(session, how, which))
        out = session.library.request.folder
        return _json(
            {
                "folders": found.folders,
                "left": found.left,
                "links": found.links,
                "files": len(found.wanted),
                "bytes": found.bytes,
                "free": finish.free_bytes(out),
                "out": str(real_path(out) / SORTED),
                "pile": str(real_path(session.library.request.pile)),
                "sorting": finish.sorting_of(session),
                "command": undo_command(out, session.library.request.pile),
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
        self.tell()
        return _json({"files": count, **_shown(problems)})

    async def undo(self, request: Request) -> Response:
        done = await self.in_thread(self.work, lambda: finish.undo_sorting(self.session))
        self.tell()
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


class UnknownError(Exception):
    """No such image or table."""


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
    how = values.get("how")
    if how not in ("copy", "move", "link"):
        raise InputError("how must be copy, move or link")
    return how


def _which(values: Any) -> Any:
    which = values.get("which", "all")
    if which not in ("all", "confirmed"):
        raise InputError("which must be all or confirmed")
    return which


async def _refuse(request: Request, error: Exception) -> Response:
    if isinstance(error, UnknownError):
        return JSONResponse({"problem": "there is no such thing"}, 404)
    if isinstance(error, TooLargeError):
        return JSONResponse({"problem": "the request is too large"}, 413)
    status = (
        507
        if isinstance(error, sqlite3.Error | LostDatabaseError)
        else 409
        if isinstance(error, ConflictError)
        else 503
        if isinstance(error, NotReadyError)
        else 400
    )
    if isinstance(error, sqlite3.Error):
        return JSONResponse(
            {"problem": f"The answer cannot be written ({printable(str(error))})"}, status
        )
    if isinstance(error, InputError) and request.method == "GET" and "image" in request.path_params:
        status = 404
    text = (
        printable(str(error)) if isinstance(error, InputError) else printable(str(error.args[-1]))
    )
    return JSONResponse({"problem": text}, status)


def app_of(pages: Pages) -> Starlette:
    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        pages.loop = asyncio.get_running_loop()
        yield

    kinds = (InputError, UnknownError, TooLargeError, OSError, sqlite3.Error)
    handlers: dict[Any, Any] = dict.fromkeys(kinds, _refuse)
    return Starlette(routes=pages.routes(), exception_handlers=handlers, lifespan=lifespan)


class Server(uvicorn.Server):
    """uvicorn's, without its own handling of signals: see `stopped_by_signals`.

    It would send a signal once more when it has ended, which the second Ctrl-C looks like.
    """

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@dataclass(frozen=True)
class Running:
    """A server that is ready to run, and what it serves."""

    server: uvicorn.Server
    listener: socket.socket
    session: Session
    guard: Guard
    base: str
    """The address, without a token."""

    def run(self) -> None:
        """Serve until it is interrupted, or `server.should_exit`."""
        self.server.run([self.listener])


def label(request: LabelRequest) -> None:
    """Serve the page until it is interrupted."""
    with opened(request) as running, stopped_by_signals(running.server) as received:
        announce(request, f"{running.base}/?token={running.guard.token()}")
        running.run()
    print(f"stopped; {where_answers_are(request.folder)}", file=sys.stderr)
    sys.exit(143 if signal.SIGTERM in received else 130 if received else 0)


def where_answers_are(out: Path) -> str:
    """The last line of the command, which must be true."""
    shown = printable(str(out))
    if (out / DATABASE).exists():
        return f"answers are in {shown}"
    return f"{shown}/{DATABASE} was moved or deleted while it ran, and the answers in it"


@contextlib.contextmanager
def stopped_by_signals(server: uvicorn.Server) -> Iterator[list[int]]:
    """Ctrl-C and SIGTERM end the server in good order, at any instant; the signals received.

    An exception in the midst of its beginning or end would leave an event loop half made.
    """
    received: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        received.append(number)
        server.should_exit = True

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def opened(request: LabelRequest) -> Iterator[Running]:
    """Check the request, take OUT, and begin to read the pile."""
    check_folders(request)
    out = request.folder
    if not (out / DATABASE).exists() and not list_files(request)[0].items:
        raise InputError(f"no images in {request.pile}")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise InputError(f"cannot make the folder --out {out} ({error.strerror})") from error
    with contextlib.ExitStack() as stack:
        stack.enter_context(alone_in(out))
        database = stack.enter_context(contextlib.closing(open_database(out)))
        listener = listening(request.host, request.port, remembered_port(database))
        stack.enter_context(contextlib.closing(listener))
        port = listener.getsockname()[1]
        remember(database, "port", str(port))
        remember(database, "folder", str(Path.cwd()))
        base = f"http://{shown_host(request.host)}:{port}"
        library = Library(request, Catalog(database), lambda: None)
        session, guard = Session(Answers(database), library), Guard(database)
        thumbnails = stack.enter_context(contextlib.closing(Thumbnails(out)))
        pages = Pages(session, thumbnails, guard, base)
        stack.callback(pages.close)
        session.listeners.append(pages.tell)
        doorkeeper = Doorkeeper(app_of(pages), guard, request.host, port)
        server = Server(settings(doorkeeper))
        pages.ending = lambda: server.should_exit
        library.patience = PATIENCE if session.early else 0.0
        session.start()
        stack.callback(session.stop)
        yield Running(server, listener, session, guard, base)


def settings(app: Doorkeeper) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        log_level="error",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        limit_concurrency=200,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=3,
        ws="none",
    )


def announce(request: LabelRequest, address: str) -> None:
    out = printable(str(request.folder))
    if not is_loopback(request.host):
        print(
            f"warning: --host {printable(request.host)} lets other machines reach this page, unencrypted; "
            "whoever has the address below can see and sort these images",
            file=sys.stderr,
        )
    print(f"Answers are kept in {out}. Ctrl-C ends this; nothing is lost.", file=sys.stderr)
    print(address, flush=True)
    if not request.no_browser:
        threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()


@contextlib.contextmanager
def alone_in(out: Path) -> Iterator[None]:
    """Refuse to work in OUT beside another `semishot label`."""
    path = out / LOCK
    descriptor = lock_file(path)
    if descriptor is None:
        holder = printable(holder_of(path)) or "another process"
        raise InputError(
            f"{holder} is labeling in {out}: use its page, or end it, or choose another --out"
        )
    try:
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"process {os.getpid()} on {socket.gethostname()}".encode())
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)


def remembered_port(database: Database) -> int:
    """The port of the last time: tabs that are still open find the server again."""
    for (value,) in database.rows("SELECT value FROM about WHERE key = 'port'"):
        if str(value).isdigit() and 1024 <= int(value) < 65536:
            return int(value)
    return 0


def remember(database: Database, key: str, value: str) -> None:
    with database.transaction() as connection:
        connection.execute("INSERT OR REPLACE INTO about VALUES (?, ?)", (key, value))


def listening(host: str, port: int, remembered: int) -> socket.socket:
    """A bound socket: on the port asked for, or the one of the last time, or any that is free."""
    if not 0 <= port < 65536:
        raise InputError(f"--port must be between 0 and 65535, not {port}")
    try:
        found = socket.getaddrinfo(host.strip("[]"), None, type=socket.SOCK_STREAM)[0]
    except (socket.gaierror, UnicodeError) as error:
        raise InputError(f"--host {host} is not an address of this machine") from error
    for attempt in [port] if port else [remembered, 0]:
        made = socket.socket(found[0], socket.SOCK_STREAM)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            made.bind((found[4][0], attempt))
            made.listen(128)
            return made
        except OSError as error:
            made.close()
            reason = error.strerror
    raise InputError(
        f"cannot listen on {host}, port {port or 'any'} ({reason}): choose another --port"
    )


def shown_host(host: str) -> str:
    """The host of the printed address."""
    if host in ("0.0.0.0", "::"):
        return socket.gethostname()
    return f"[{host}]" if ":" in host and not host.startswith("[") else host
