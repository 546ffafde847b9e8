"""The server of the page: where it listens, who may talk to it, and how it stops.

A page of another site can make a browser send requests here, and by a DNS name that it points at this
machine (rebinding) read the answers too. So: the Host must be an address or a name of this machine, the
Origin must be ours, and a cookie that only our own page's requests carry must be known.
"""

import contextlib
import hashlib
import hmac
import html
import ipaddress
import os
import secrets
import socket
import sys
import threading
import time
import webbrowser
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import platformdirs
import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from semishot.errors import InputError, printable
from semishot.label import LabelRequest
from semishot.label.pile import WatchedPile, check_folders, list_files
from semishot.label.routes import STATUS, Pages, refuse
from semishot.label.session import LabelingSession
from semishot.sorter.labels import open_store
from semishot.sorter.out_folder import DATABASE, make_out
from semishot.system.files import create, read_text, real_path, write_whole
from semishot.system.locks import Lock

LOCK, REDIRECT = ".label.lock", ".label-open.html"
COOKIE_SECONDS = 30 * 86400
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
USED = (
    "This address has been used, or is not of this run of `semishot label`. In a page that is open, "
    "Help has an address for another browser; or start `semishot label` again.\n"
)


@dataclass(frozen=True)
class Running:
    """A server that is ready to run, and what it serves."""

    server: uvicorn.Server
    listener: socket.socket
    session: LabelingSession
    address: Callable[[], str]
    """An address for one more browser."""

    def run(self) -> None:
        """Serve until `server.should_exit`, or a signal, which uvicorn raises again at the end."""
        self.server.run([self.listener])


def label(request: LabelRequest) -> None:
    """Serve the page until it is interrupted."""
    with opened(request) as running:
        announce(request, running.address())
        with contextlib.nullcontext() if request.no_browser else browser(request, running):
            running.run()


def announce(request: LabelRequest, address: str) -> None:
    if not is_loopback(request.host):
        print(
            f"warning: --host {printable(request.host)} lets other machines reach this page, unencrypted; "
            "whoever has the address below can see and sort these images",
            file=sys.stderr,
        )
    out = printable(str(request.folder))
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
    out, lock = request.folder, Lock(request.folder / LOCK)
    if not (out / DATABASE).exists() and not list_files(request).items:
        raise InputError(f"no images in {request.pile}")
    make_out(out)
    if not lock.acquire(announce=False):
        raise InputError(
            f"another process is labeling in {out}: use its page, stop it, or choose another --out"
        )
    with lock, contextlib.closing(open_store(out)) as store:
        before = store.about("port") or ""  # open tabs find the server again there
        remembered = min(int(before), 65535) if before.isdigit() else 0
        listener = listening(request.host, request.port, remembered)
        with contextlib.closing(listener):
            port = listener.getsockname()[1]
            store.remember("port", str(port))
            store.remember("folder", str(Path.cwd()))
            session = LabelingSession(store, WatchedPile(request, store))
            guard = Guard(out, request.host, port)
            app = Starlette(
                routes=Pages(session, guard.address).routes(),
                middleware=[Middleware(BaseHTTPMiddleware, dispatch=guard.admit)],
                exception_handlers=dict.fromkeys(STATUS, refuse),
            )
            config = uvicorn.Config(
                app,
                log_level="error",
                access_log=False,
                proxy_headers=False,
                server_header=False,
                timeout_keep_alive=30,
                timeout_graceful_shutdown=3,
                ws="none",
            )
            session.start()
            try:
                yield Running(uvicorn.Server(config), listener, session, guard.address)
            finally:
                session.stop()


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


def is_loopback(host: str) -> bool:
    """Whether an address to listen on can be reached from this machine only."""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    return host == "localhost"


class Guard:
    """Lets a browser in that has shown a token, which is good once, or has the cookie that it got for one."""

    def __init__(self, out: Path, host: str, port: int) -> None:
        self.host, self.port = host, port
        self.cookie, self.secret = f"semishot-{port}", remembered_secret(out)
        """Browsers share cookies between the ports of a host."""
        self.tokens = set[str]()
        shown = socket.gethostname() if host in ("0.0.0.0", "::") else host
        shown = f"[{shown}]" if ":" in shown and not shown.startswith("[") else shown
        self.base = f"http://{shown}:{port}"

    def address(self) -> str:
        """An address with a token, for one browser."""
        token = secrets.token_urlsafe(32)
        self.tokens.add(token)
        return f"{self.base}/?token={token}"

    async def admit(self, request: Request, call_next: RequestResponseEndpoint) -> Response:
        """Let a request in, or answer it with a line of text."""
        cookie, token = request.cookies.get(self.cookie, ""), request.query_params.get("token")
        response: Response = PlainTextResponse(USED, 401)
        if not self._host_is_ours(request):
            response = PlainTextResponse("this is not the address of `semishot label`\n", 421)
        elif not _origin_is_ours(request):
            line = "only the page of `semishot label` may ask this\n"
            response = PlainTextResponse(line, 403)
        elif hmac.compare_digest(cookie.encode("utf-8", "surrogatepass"), self.secret.encode()):
            response = await call_next(request)
        elif token in self.tokens and request.method == "GET" and request.url.path == "/":
            self.tokens.remove(token)
            response = await call_next(request)
            response.set_cookie(
                self.cookie, self.secret, COOKIE_SECONDS, httponly=True, samesite="strict"
            )
        response.headers.update(HEADERS)
        response.headers.setdefault("cache-control", "no-store")
        return response

    def _host_is_ours(self, request: Request) -> bool:
        """An address, localhost or this machine's name, with our port: no name that others can point here."""
        with contextlib.suppress(ValueError):
            shown = urlsplit(f"//{request.headers.get('host', '')}")
            name = shown.hostname or ""
            if (shown.port or 80) != self.port or shown.username or shown.path:
                return False
            if is_loopback(self.host) or is_loopback(name):
                return is_loopback(name)
            own = {self.host.lower(), socket.gethostname().lower()}
            return name in own or bool(ipaddress.ip_address(name))
        return False


def _origin_is_ours(request: Request) -> bool:
    """Other ports of this machine are the same site for a cookie, so browsers are asked for more."""
    headers = request.headers
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    ours = f"http://{headers.get('host', '')}"
    if request.method in ("GET", "HEAD"):
        from_here = request.url.path == "/" or site in (None, "none", "same-origin")
        return origin in (None, ours) and from_here
    return origin == ours and site in (None, "same-origin")


def remembered_secret(out: Path) -> str:
    """What the cookies of known browsers hold, also after a restart.

    It is in the user's own state folder and not in OUT: whoever supplies that must not be logged in.
    """
    name = hashlib.sha256(os.fsencode(real_path(out))).hexdigest()[:32]
    path = Path(platformdirs.user_state_dir("semishot")) / "label" / f"{name}.txt"
    with contextlib.suppress(OSError, ValueError):
        remembered = read_text(path, 100)
        if len(remembered) > 40 and path.stat().st_mtime > time.time() - COOKIE_SECONDS:
            return remembered
    secret = secrets.token_urlsafe(32)
    with contextlib.suppress(OSError):  # after a restart, tabs need a new token
        path.parent.mkdir(0o700, parents=True, exist_ok=True)
        path.parent.chmod(0o700)
        write_whole(path, secret)
    return secret
