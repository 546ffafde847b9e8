"""The server of the page: how it starts, where it listens, and how it stops."""

import contextlib
import html
import socket
import sys
import threading
import webbrowser
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from semishot.errors import InputError, printable
from semishot.label import LabelRequest
from semishot.label.pile import PileReader, check_folders, list_files
from semishot.label.routes import Pages
from semishot.label.security import Doorkeeper, Guard, is_loopback
from semishot.label.session import LabelingSession
from semishot.sorter.labels import DATABASE, LabelStore, open_store
from semishot.sorter.out_folder import make_out
from semishot.system.files import create
from semishot.system.locks import Lock

LOCK, REDIRECT = ".label.lock", ".label-open.html"


@dataclass(frozen=True)
class Running:
    """A server that is ready to run, and what it serves."""

    server: uvicorn.Server
    listener: socket.socket
    session: LabelingSession
    guard: Guard
    base: str
    """The address, without a token."""

    def run(self) -> None:
        """Serve until `server.should_exit`, or a signal, which uvicorn raises again at the end."""
        self.server.run([self.listener])

    def address(self) -> str:
        """The address for one more browser."""
        return f"{self.base}/?token={self.guard.token()}"


def label(request: LabelRequest) -> None:
    """Serve the page until it is interrupted."""
    with opened(request) as running:
        announce(request, running.address())
        with contextlib.nullcontext() if request.no_browser else browser(request, running):
            running.run()


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


@contextlib.contextmanager
def browser(request: LabelRequest, running: Running) -> Iterator[None]:
    """Open the page in the user's browser.

    Everybody on a machine can see the arguments of a process, so the browser gets the name of a file that
    only this user can read, and which leads it to the address with the token.
    """
    path = request.folder / REDIRECT
    path.unlink(missing_ok=True)
    address = html.escape(running.address())
    with create(path) as file:
        path.chmod(0o600)
        file.write(f'<meta http-equiv="refresh" content="0; url={address}">\n'.encode())
    uri = path.absolute().as_uri()
    threading.Thread(target=webbrowser.open, args=(uri,), daemon=True).start()
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def opened(request: LabelRequest) -> Iterator[Running]:
    """Check the request, take OUT, and begin to read the pile."""
    check_folders(request)
    out = request.folder
    if not (out / DATABASE).exists() and not list_files(request).items:
        raise InputError(f"no images in {request.pile}")
    make_out(out)
    with contextlib.ExitStack() as stack:
        stack.enter_context(alone_in(out))
        store = stack.enter_context(contextlib.closing(open_store(out)))
        listener = listening(request.host, request.port, remembered_port(store))
        stack.enter_context(contextlib.closing(listener))
        port = listener.getsockname()[1]
        store.remember("port", str(port))
        store.remember("folder", str(Path.cwd()))
        session, guard = LabelingSession(store, PileReader(request, store)), Guard(out)
        base = f"http://{shown_host(request.host)}:{port}"
        app = Pages(session, guard, base).app()
        server = uvicorn.Server(settings(Doorkeeper(app, guard, request.host, port)))
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
        timeout_keep_alive=30,
        timeout_graceful_shutdown=3,
        ws="none",
    )


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


def remembered_port(store: LabelStore) -> int:
    """The port of the last time: tabs that are still open find the server again."""
    value = store.about("port") or ""
    return int(value) if value.isdigit() and 1024 <= int(value) < 65536 else 0


def listening(host: str, port: int, remembered: int) -> socket.socket:
    """A bound socket: on the port asked for, or the one of the last time, or any that is free."""
    if not 0 <= port < 65536:
        raise InputError(f"--port must be between 0 and 65535, not {port}")
    try:
        resolved = socket.getaddrinfo(host.strip("[]"), None, type=socket.SOCK_STREAM)[0]
    except (socket.gaierror, UnicodeError) as error:
        raise InputError(f"--host {host} is not an address of this machine") from error
    for attempt in [port] if port else [remembered, 0]:
        listener = socket.socket(resolved[0], socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((resolved[4][0], attempt))
            listener.listen(128)
            return listener
        except OSError as error:
            listener.close()
            reason = error.strerror
    raise InputError(
        f"cannot listen on {host}, port {port or 'any'} ({reason}): choose another --port"
    )


def shown_host(host: str) -> str:
    """The host of the printed address."""
    if host in ("0.0.0.0", "::"):
        return socket.gethostname()
    return f"[{host}]" if ":" in host and not host.startswith("[") else host
