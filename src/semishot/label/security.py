"""Who may talk to the server: this machine's browsers that have shown the token, from our own page.

A page of another site can make a browser send requests here, and by a DNS name that it points at this
machine (rebinding) read the answers too. So: the Host must be an address or a name of this machine, the
Origin must be ours, and a cookie that only our own page's requests carry must be known.
"""

import contextlib
import hashlib
import hmac
import ipaddress
import json
import secrets
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import platformdirs
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from semishot.errors import InputError
from semishot.system.files import real_path, write_whole
from semishot.system.structs import read_struct

MOST_BROWSERS, BROWSER_DAYS, MOST_TOKENS = 32, 30, 8
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


def is_loopback(host: str) -> bool:
    """Whether an address to listen on can be reached from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class Guard:
    """Tokens that are good once, and the browsers that have shown one.

    Digests of the browsers' secrets are kept in the user's own state folder, for a restart. They are not in
    OUT: whoever supplies that folder must not be logged in.
    """

    def __init__(self, out: Path) -> None:
        self.tokens: list[str] = []
        name = hashlib.sha256(str(real_path(out)).encode("utf-8", "surrogatepass")).hexdigest()
        self.path = Path(platformdirs.user_state_dir("semishot")) / "label" / f"{name[:32]}.json"
        self.browsers: list[str] = []
        with contextlib.suppress(OSError, InputError):
            if self.path.stat().st_mtime > time.time() - BROWSER_DAYS * 86400:
                self.browsers = read_struct(list[str], self.path)

    def token(self) -> str:
        """A new token, for one browser."""
        made = secrets.token_urlsafe(32)
        self.tokens = [*self.tokens[1 - MOST_TOKENS :], made]
        return made

    def admit(self, token: str) -> str | None:
        """The secret for a browser's cookie, if the token is good; it is not good again."""
        good = [t for t in self.tokens if hmac.compare_digest(t.encode(), token.encode())]
        if not good:
            return None
        self.tokens.remove(good[0])
        secret = secrets.token_urlsafe(32)
        self.browsers = [_digest(secret), *self.browsers][:MOST_BROWSERS]
        with contextlib.suppress(OSError):  # after a restart, tabs need a new token
            self.path.parent.mkdir(0o700, parents=True, exist_ok=True)
            self.path.parent.chmod(0o700)
            write_whole(self.path, json.dumps(self.browsers))
        return secret

    def knows(self, secret: str) -> bool:
        digest = _digest(secret)
        return any(hmac.compare_digest(digest, known) for known in self.browsers)


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


class Doorkeeper:
    """ASGI middleware: lets a request in or answers it with a line of text."""

    def __init__(self, app: ASGIApp, guard: Guard, host: str, port: int) -> None:
        self.app, self.guard, self.host, self.port = app, guard, host, port
        self.cookie = f"semishot-{port}"  # browsers share cookies between the ports of a host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        cookie, refused = self._check(scope)
        guarded = _with_headers(send, cookie)
        if refused is not None:
            status, text = refused
            await PlainTextResponse(text, status)(scope, receive, guarded)
            return
        await self.app(scope, receive, guarded)

    def _check(self, scope: Scope) -> tuple[str | None, tuple[int, str] | None]:
        """A cookie to set, and a status and text if the request is refused."""
        request = Request(scope)
        headers, path = request.headers, request.url.path
        if not self._host_is_ours(headers):
            return None, (421, "this is not the address of `semishot label`\n")
        if not self._origin_is_ours(headers, request.method, path):
            return None, (403, "only the page of `semishot label` may ask this\n")
        if self.guard.knows(request.cookies.get(self.cookie, "")):
            return None, None
        begins = request.method == "GET" and path == "/"
        secret = self.guard.admit(request.query_params.get("token", "")) if begins else None
        if secret is None:
            return None, (401, USED)
        attributes = f"Max-Age={BROWSER_DAYS * 86400}; Path=/; HttpOnly; SameSite=Strict"
        return f"{self.cookie}={secret}; {attributes}", None

    def _host_is_ours(self, headers: Mapping[str, str]) -> bool:
        """An address, localhost or this machine's name, with our port: no name that others can point here."""
        try:
            shown = urlsplit(f"//{headers.get('host', '')}")
            name, port = shown.hostname or "", shown.port or 80
        except ValueError:
            return False
        if port != self.port or shown.username or shown.path:
            return False
        if is_loopback(self.host):
            return is_loopback(name)
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return name in {"localhost", self.host.lower(), socket.gethostname().lower()}
        return True

    def _origin_is_ours(self, headers: Mapping[str, str], method: str, path: str) -> bool:
        """Other ports of this machine are the same site for a cookie, so browsers are asked for more."""
        site = headers.get("sec-fetch-site")
        origin = headers.get("origin")
        ours = f"http://{headers.get('host', '')}"
        if method in ("GET", "HEAD"):
            return origin in (None, ours) and (path == "/" or site in (None, "none", "same-origin"))
        return origin == ours and site in (None, "same-origin")


def _with_headers(send: Send, cookie: str | None) -> Send:
    async def guarded(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(raw=list(message.get("headers", [])))
            for name, value in HEADERS.items():
                headers[name] = value
            headers.setdefault("cache-control", "no-store")
            if cookie is not None:
                headers.append("set-cookie", cookie)
            message = {**message, "headers": headers.raw}
        await send(message)

    return guarded
