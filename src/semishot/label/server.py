"""The server of the page: how it is begun, where it listens, and how it ends."""

import contextlib
import signal
import socket
import sys
import threading
import webbrowser
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import uvicorn

from semishot.errors import InputError, printable
from semishot.label.catalog import Catalog
from semishot.label.pile_files import check_folders, list_files
from semishot.label.pile_reader import PATIENCE, PileReader
from semishot.label.requests import LabelRequest
from semishot.label.routes import Pages, app_of
from semishot.label.security import Doorkeeper, Guard, is_loopback
from semishot.label.session import Session
from semishot.label.thumbnails import Thumbnails
from semishot.sorter.answers import Answers
from semishot.sorter.labels_database import DATABASE, Database, open_database
from semishot.sorter.out_folder import make_out
from semishot.system.locks import Lock

LOCK = ".label.lock"


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
    make_out(out)
    with contextlib.ExitStack() as stack:
        stack.enter_context(alone_in(out))
        database = stack.enter_context(contextlib.closing(open_database(out)))
        listener = listening(request.host, request.port, remembered_port(database))
        stack.enter_context(contextlib.closing(listener))
        port = listener.getsockname()[1]
        database.remember("port", str(port))
        database.remember("folder", str(Path.cwd()))
        base = f"http://{shown_host(request.host)}:{port}"
        reader = PileReader(request, Catalog(database))
        session, guard = Session(Answers(database), reader), Guard(database)
        thumbnails = stack.enter_context(contextlib.closing(Thumbnails(out)))
        pages = Pages(session, thumbnails, guard, base)
        stack.callback(pages.close)
        session.listeners.append(pages.tabs.tell)
        doorkeeper = Doorkeeper(app_of(pages), guard, request.host, port)
        server = Server(settings(doorkeeper))
        pages.tabs.ending = lambda: server.should_exit
        reader.patience = PATIENCE if session.early else 0.0
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
    print(f"Answers are kept in {out}. Press Ctrl-C to stop; nothing is lost.", file=sys.stderr)
    print(address, flush=True)
    if not request.no_browser:
        threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()


@contextlib.contextmanager
def alone_in(out: Path) -> Iterator[None]:
    """Refuse to work in OUT beside another `semishot label`."""
    lock = Lock(out / LOCK)
    if not lock.acquire(announce=False):
        raise InputError(
            f"another process is labeling in {out}: use its page, stop it, or choose another --out"
        )
    with lock:
        yield


def remembered_port(database: Database) -> int:
    """The port of the last time: tabs that are still open find the server again."""
    value = database.about("port") or ""
    return int(value) if value.isdigit() and 1024 <= int(value) < 65536 else 0


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
