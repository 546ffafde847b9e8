"""Who may talk to the server: this machine's browsers that have shown the token, from our own page.

A page of another site can make a browser send requests here, and by a DNS name that it points at this
machine (rebinding) read the answers too. So: the Host must be an address or a name of this machine, the
Origin must be ours, and a cookie that only our own page's requests carry must be known.
"""

import hashlib
import hmac
import ipaddress
import secrets
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from semishot.sorter.labels_database import Database

MOST_BODY = 8 * 2**20
"""Bytes of a request: 100,000 images in one answer take one."""
MOST_BROWSERS, BROWSER_DAYS, MOST_TOKENS = 32, 30, 8
REQUESTS, CHANGES, FAILURES = (6000, 10.0), (400, 10.0), (20, 60.0)
"""How many in how many seconds: of the requests of known browsers, of those of them that change something,
of requests without a cookie. Who is not known uses up nothing of what the known ones have."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
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
    """Tokens that are good once, and the browsers that have shown one; the disk holds digests only."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.tokens: list[str] = []
        oldest = time.time() - BROWSER_DAYS * 86400
        with database.transaction() as connection:
            connection.execute("DELETE FROM browsers WHERE at < ?", (oldest,))
        rows = database.rows("SELECT secret FROM browsers ORDER BY at DESC LIMIT ?", MOST_BROWSERS)
        self.browsers = [str(secret) for (secret,) in rows]

    def token(self) -> str:
        """A new token, for one browser."""
        made = secrets.token_urlsafe(32)
        self.tokens = [*self.tokens[1 - MOST_TOKENS :], made]
        return made

    def admit(self, token: str) -> str | None:
        """The secret for a browser's cookie, if the token is good; it is not good again."""
        found = [
            known for known in self.tokens if hmac.compare_digest(known.encode(), token.encode())
        ]
        if not found:
            return None
        self.tokens.remove(found[0])
        secret = secrets.token_urlsafe(32)
        with self.database.transaction() as connection:
            connection.execute("INSERT INTO browsers VALUES (?, ?)", (_digest(secret), time.time()))
        self.browsers = [_digest(secret), *self.browsers][:MOST_BROWSERS]
        return secret

    def knows(self, secret: str) -> bool:
        shown = _digest(secret)
        return any(hmac.compare_digest(shown, known) for known in self.browsers)


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass
class Allowance:
    """A bucket that holds `most`, and is full again after `seconds`."""

    most: float
    seconds: float
    left: float = field(init=False)
    at: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.left = self.most

    def take(self, now: float | None = None) -> bool:
        now = time.monotonic() if now is None else now
        self.left = min(self.most, self.left + (now - self.at) * self.most / self.seconds)
        self.at = now
        if self.left < 1:
            return False
        self.left -= 1
        return True


class TooLargeError(Exception):
    """A body that has more bytes than its limit; the app answers with 413."""


class Doorkeeper:
    """ASGI middleware: lets a request in or answers it with a line of text."""

    def __init__(self, app: ASGIApp, guard: Guard, host: str, port: int) -> None:
        self.app, self.guard, self.host, self.port = app, guard, host, port
        self.cookie = f"semishot-{port}"  # browsers share cookies between the ports of a host
        self.allowances = {
            "requests": Allowance(*REQUESTS),
            "changes": Allowance(*CHANGES),
            "failures": Allowance(*FAILURES),
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        cookie, refused = self._judge(scope)
        guarded = _with_headers(send, cookie)
        if refused is not None:
            status, text = refused
            await PlainTextResponse(text, status)(scope, receive, guarded)
            return
        await self.app(scope, _limited(receive), guarded)

    def _judge(self, scope: Scope) -> tuple[str | None, tuple[int, str] | None]:
        """A cookie to set, and a status and text if the request is refused."""
        headers = Headers(scope=scope)
        known = self.guard.knows(_cookies(headers).get(self.cookie, ""))
        if known and not self.allowances["requests"].take():
            return None, (429, "too many requests; wait a moment\n")
        if not self._host_is_ours(headers):
            return None, (421, "this is not the address of `semishot label`\n")
        if not self._origin_is_ours(headers, scope["method"], scope["path"]):
            return None, (403, "only the page of `semishot label` may ask this\n")
        changes = scope["method"] not in ("GET", "HEAD")
        if known and changes and not self.allowances["changes"].take():
            return None, (429, "too many answers at once; wait a moment\n")
        length = headers.get("content-length", "0")
        if not (length.isascii() and length.isdigit()) or int(length) > MOST_BODY:
            return None, (413, f"a request has at most {MOST_BODY:,} bytes\n")
        return (None, None) if known else self._admit(scope)

    def _admit(self, scope: Scope) -> tuple[str | None, tuple[int, str] | None]:
        """A good token is always let in: nobody can lock a person out by guessing."""
        secret = None
        if scope["method"] == "GET" and scope["path"] == "/":
            query = parse_qs(scope["query_string"].decode("latin-1"))
            secret = self.guard.admit(query.get("token", [""])[0])
        if secret is None and not self.allowances["failures"].take():
            return None, (429, "too many attempts; wait a minute\n")
        if secret is None:
            return None, (401, USED)
        kept = f"Max-Age={BROWSER_DAYS * 86400}; Path=/; HttpOnly; SameSite=Strict"
        return f"{self.cookie}={secret}; {kept}", None

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


def _cookies(headers: Mapping[str, str]) -> dict[str, str]:
    pairs = (part.partition("=") for part in headers.get("cookie", "").split(";"))
    return {name.strip(): value.strip() for name, _, value in pairs}


def _limited(receive: Receive) -> Receive:
    """Counts the bytes of a body that does not say its length."""
    count = 0

    async def limited() -> Message:
        nonlocal count
        message = await receive()
        count += len(message.get("body", b""))
        if count > MOST_BODY:
            raise TooLargeError
        return message

    return limited


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
