"""Nobody else gets in: token, cookie, Host, Origin, policy, limits, ids instead of paths, names as text."""

import contextlib
import hashlib
import json
import socket
import tomllib
from dataclasses import replace

import pytest

from semishot.label import LabelRequest, routes
from semishot.label.server import announce, is_loopback, remembered_secret
from support.labeling import Client, serving
from support.own_images import draw, save

GET = [
    *("/", "/page.js", "/state", "/news/0", "/thumb/1", "/large/1", "/image/1", "/find?text=a"),
    *("/plan?how=copy", "/table/labels.csv"),
]
POST = ["/answer", "/names", "/apply", "/undo", "/model", "/invite"]


@pytest.fixture(scope="module")
def opened(drawings, cache, tmp_path_factory):
    """The server and a client, for tests that change nothing."""
    out = tmp_path_factory.mktemp("out")
    asked = LabelRequest(drawings[1], out=out, encoder="omniglot", cache=cache, device="cpu")
    with serving(asked, 48) as (running, client):
        yield running, client


@pytest.fixture
def stranger(opened):
    """Somebody without a cookie."""
    return Client(opened[1].base)


def test_it_listens_on_this_machine_only(opened):
    assert opened[0].listener.getsockname()[0] == "127.0.0.1"
    assert LabelRequest.host == "127.0.0.1"


@pytest.mark.parametrize("path", [*GET, *POST])
def test_without_the_cookie_nothing_is_shown_or_changed(stranger, path):
    body = {} if path in POST else None
    for cookie in ("", f"semishot-{stranger.host.rsplit(':', 1)[1]}=guess"):
        stranger.cookie = cookie
        status, _, content = stranger.ask(path, body)
        assert (status, b"<" in content) == (401, False)


def test_a_token_is_good_once_and_leaves_a_strict_cookie(opened, stranger):
    token = opened[0].address().partition("=")[2]
    status, headers, content = stranger.ask(f"/?token={token}")
    assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
    cookie = headers["set-cookie"]
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= {part.strip() for part in cookie.split(";")}
    assert token not in cookie
    assert token.encode() not in content
    assert stranger.ask(f"/?token={token}")[0] == 401
    stranger.cookie = cookie.partition(";")[0]
    assert stranger.ask("/state")[0] == 200


def test_whoever_supplies_out_is_not_logged_in(opened, state_folder):
    """What cookies hold is not in OUT, but in the user's own state folder."""
    running, client = opened
    out, secret = running.session.pile.request.folder, client.cookie.partition("=")[2]
    for path in (path for path in out.rglob("*") if path.is_file()):
        assert secret.encode() not in path.read_bytes()
    (known,) = (path for path in state_folder.rglob("*.txt") if secret in path.read_text())
    assert known.parent.stat().st_mode & 0o777 == 0o700
    assert remembered_secret(out) == secret != remembered_secret(out.with_name("elsewhere"))
    known.write_text("")
    assert len(remembered_secret(out)) > 40


def test_answers_are_for_their_user_only(opened):
    out = opened[0].session.pile.request.folder
    modes = {path.name: path.stat().st_mode & 0o777 for path in out.glob("*.sqlite*")}
    assert set(modes) >= {"labels.sqlite", "labels.sqlite-wal"}
    assert set(modes.values()) == {0o600}


def test_images_outside_of_the_pile_are_not_served(asked_few, tmp_path):
    """A predictions.csv in a supplied OUT named them as labeled, a journal as moved behind a link."""
    secret = save(draw("dots", 1), tmp_path / "elsewhere" / "secret.png")
    (asked_few.folder / "sorted").mkdir(parents=True)
    (asked_few.folder / "sorted" / "x").symlink_to(secret.parent)
    digest = hashlib.sha256(secret.read_bytes()).hexdigest()
    journal = {"format": 3, "how": "move", "pile": str(asked_few.pile)}
    journal["steps"] = [["gone.png", "x/secret.png", digest, "sorted"]]
    (asked_few.folder / "undo.json").write_text(json.dumps(journal))
    (asked_few.folder / "predictions.csv").write_text(
        "path,label,probability,decision,runner_up,correct\n"
        f"{secret},a,1,labeled,,\n{asked_few.pile}/0.png,a,0.5,pile,,\n"
    )
    with serving(asked_few) as (_, client):
        state = client.until(lambda state: state["rows"] >= 3)
        assert state["rows"] == 3
        assert "secret.png" not in client.names()


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "a@127.0.0.1:{port}", ""],
)
def test_another_host_is_refused(opened, host):
    """A name that others control may point at this machine: DNS rebinding."""
    client = opened[1]
    said = host.format(port=client.host.rsplit(":", 1)[1])
    assert client.ask("/state", host=said)[0] in (400, 421)


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1", None])
def test_another_origin_changes_nothing(opened, origin):
    """A form or script of another page: CSRF."""
    client = opened[1]
    assert client.ask("/answer", {"kind": "undo"}, origin=origin)[0] == 403


def test_a_page_on_another_port_of_this_machine_reads_nothing(opened):
    """It is the same site, so the browser sends the cookie; it says that the origin is another."""
    client = opened[1]
    assert client.ask("/thumb/1", sec_fetch_site="same-site")[0] == 403
    assert client.ask("/state", origin="http://127.0.0.1:1")[0] == 403
    assert client.ask("/answer", {"kind": "undo"}, sec_fetch_site="same-site")[0] == 403


@pytest.mark.parametrize("path", ["/", "/state", "/thumb/999999", "/nothing", "/thumb/x"])
def test_every_answer_carries_the_policy(opened, path):
    _, headers, _ = opened[1].ask(path)
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert "frame-ancestors 'none'" in policy
    assert "access-control-allow-origin" not in headers
    assert "server" not in headers


def test_every_script_is_served_and_in_the_package(opened):
    assert all(opened[1].ask(f"/{name}")[0] == 200 for name in routes.SCRIPTS)
    settings = tomllib.loads((routes.FOLDER.parents[2] / "pyproject.toml").read_text("utf-8"))
    patterns = settings["tool"]["setuptools"]["package-data"]["semishot"]
    packed = {path for pattern in patterns for path in routes.FOLDER.parent.glob(pattern)}
    assert set(routes.FOLDER.rglob("*.js")) <= packed


def test_the_page_loads_nothing_from_elsewhere_and_has_no_inline_script(opened):
    _, _, page = opened[1].ask("/")
    assert b"://" not in page
    assert b"onclick" not in page
    assert b"style=" not in page
    for name in routes.SCRIPTS:
        _, _, script = opened[1].ask(f"/{name}")
        assert b"eval(" not in script
        if name != "preact.js":  # it names the properties and name spaces that it can set
            assert b"nnerHTML" not in script
            assert b"://" not in script


@pytest.mark.parametrize(
    "path",
    [
        *("/thumb/../../etc/passwd", "/thumb/%2e%2e%2fpage.py", "/large//etc/passwd", "/thumb/-1"),
        *("/thumb/0", "/thumb/99999999999999999999", "/table/..%2flabels.sqlite", "/server.py"),
    ],
)
def test_images_are_served_by_number_and_never_by_path(opened, path):
    status, _, content = opened[1].ask(path)
    assert status == 404
    assert b"root:" not in content


def test_only_images_of_the_pile_are_served(opened):
    """A number of the catalog that is not in this pile: seen in an earlier session, of another folder."""
    running, client = opened
    number = running.session.store.numbers([b"\1" * 32])[0]
    assert client.ask(f"/thumb/{number}")[0] == 404
    assert client.ask("/answer", {"kind": "answer", "set": [[0, [number]]]})[0] == 409


def test_a_file_that_was_replaced_by_another_is_not_served(asked_own, tmp_path):
    pile = asked_own.pile
    with serving(asked_own, 48) as (_, client):
        image = client.names()["dots-0.png"]
        (tmp_path / "secret.png").write_bytes((pile / "dots-1.png").read_bytes())
        (pile / "dots-0.png").unlink()
        (pile / "dots-0.png").symlink_to(tmp_path / "secret.png")
        assert client.refused(f"/large/{image}") == (400, "its file has changed")


def test_large_bodies_are_refused_whether_they_say_so_or_not(opened):
    client = opened[1]
    assert client.ask("/answer", b"", content_length=str(routes.MOST_BODY + 1))[0] == 413
    assert client.ask("/answer", b"", content_length="-5")[0] in (400, 413)
    address, port = client.host.rsplit(":", 1)
    chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    with socket.create_connection((address, int(port)), timeout=60) as raw:
        head = f"POST /answer HTTP/1.1\r\nHost: {client.host}\r\nOrigin: {client.base}\r\n"
        head += f"Cookie: {client.cookie}\r\nContent-Type: application/json\r\n"
        body = chunk * (routes.MOST_BODY // 0x10000 + 2)
        with contextlib.suppress(OSError):  # it is closed while we send, and the answer may be lost
            raw.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode() + body)
        with contextlib.suppress(ConnectionResetError):
            assert raw.recv(64).startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"[" * 100_000, b"\xff"])
def test_bodies_that_are_not_json_objects_are_refused(opened, body):
    status, problem = opened[1].refused("/answer", body)
    assert (status, problem.startswith("the request")) == (400, True)


def test_a_form_of_another_kind_is_refused(opened):
    status, _, _ = opened[1].ask("/answer", {"kind": "undo"}, content_type="text/plain")
    assert status == 400


@pytest.mark.parametrize(
    ("host", "own"),
    [
        *((host, True) for host in ("127.0.0.1", "127.8.8.8", "localhost", "::1", "[::1]")),
        *((host, False) for host in ("0.0.0.0", "192.168.1.2", "example.org", "")),
    ],
)
def test_which_addresses_are_this_machines_own(host, own):
    assert is_loopback(host) == own


def test_another_host_prints_a_warning_and_still_asks_for_the_token(asked, capsys, cache):
    asked = replace(asked, host="0.0.0.0", no_browser=True)
    announce(asked, "http://a/?token=b")
    said = capsys.readouterr()
    assert said.err.startswith("warning: --host 0.0.0.0 lets other machines reach this page")
    assert said.out == "http://a/?token=b\n"
    with serving(asked) as (running, client):
        port = running.listener.getsockname()[1]
        client.host = f"127.0.0.1:{port}"
        assert client.ask("/state")[0] == 200
        assert client.ask("/state", cookie=None)[0] == 401
        assert client.ask("/state", host=f"evil.example:{port}")[0] == 421
        assert client.ask("/state", host=f"{socket.gethostname()}:{port}")[0] == 200
