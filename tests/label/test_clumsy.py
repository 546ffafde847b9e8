"""What nobody meant: odd requests, full disks, folders that go away, plans that are out of date."""

import json
import shutil
import socket
import sqlite3
import threading
from contextlib import ExitStack, closing

import pytest

from semishot.label import finish, thumbnails
from semishot.label.requests import LabelRequest
from semishot.label.security import MOST_TOKENS, Allowance
from semishot.label.server import where_answers_are
from semishot.label.thumbnails import Thumbnails
from semishot.sorter.answer_state import MOST_CLASSES
from semishot.sorter.answers import Answers
from semishot.sorter.labels_database import LostDatabaseError, open_database
from support.labeling import Client, serving
from support.own_images import draw, save


@pytest.fixture
def own(cache, tmp_path):
    """A request for a few images that may be moved or deleted."""
    pile = tmp_path / "pile"
    for number in range(3):
        save(draw("cross", number), pile / f"{number}.png")
    return LabelRequest(pile, out=tmp_path / "out", encoder="omniglot", cache=cache, device="cpu")


@pytest.fixture
def few(own):
    with serving(own) as (_, client):
        client.until(lambda state: state["rows"] == 3)
        yield client


def refused(client, path, body):
    status, _, content = client.ask(path, body)
    return status, json.loads(content)["problem"]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"kind": ["undo"]}, "kind must be text"),
        ({"kind": {}}, "kind must be text"),
        ({"kind": "undo", "key": "\ud800"}, "key must be a short text of ASCII"),
        ({"kind": "undo", "key": "x" * 65}, "key must be a short text of ASCII"),
        ({"kind": "answer", "set": [[0.0, [1]]]}, "answer must be a number"),
        ({"kind": "reject", "value": float("nan")}, "value must be between 0 and 1"),
        ({"kind": "new", "name": "\ud800", "images": []}, "must be printable"),
        ({"kind": "new", "name": "a\u202eb", "images": []}, "must be printable"),
    ],
)
def test_odd_values_are_refused_in_one_line(few, body, reason):
    status, problem = refused(few, "/answer", body)
    assert (status, reason in problem) == (400, True)


def test_an_answer_for_another_pile_is_dropped(few):
    """A tab keeps what it could not send; another pile may be at its address meanwhile."""
    status, problem = refused(few, "/answer", {"kind": "undo", "pile": "another"})
    assert (status, problem) == (409, "this answer was given for another pile, and is dropped")
    event = {"kind": "new", "name": "a", "images": [], "pile": few.state()["pile"]}
    assert few.ask("/answer", event)[0] == 200


def test_the_newest_addresses_are_good(few):
    guard = few.running.guard
    made = [guard.token() for _ in range(3 * MOST_TOKENS)]
    assert guard.tokens == made[-MOST_TOKENS:]


def test_whoever_is_not_known_uses_up_nothing_of_those_who_are(few):
    """Another page can make a browser send requests; they carry no cookie."""
    door, stranger = few.running.server.config.app, Client(few.running)
    door.allowances = {name: Allowance(5, 1e9) for name in door.allowances}
    for _ in range(6):
        assert stranger.ask("/state")[0] in (401, 429)
        assert stranger.ask("/answer", {"kind": "undo"})[0] in (401, 429)
        assert stranger.ask("/state", host="evil.example")[0] == 421
    assert few.ask("/state")[0] == 200
    assert few.ask("/answer", {"kind": "new", "name": "a", "images": []})[0] == 200
    assert stranger.ask(f"/?token={few.running.guard.token()}")[0] == 200


def test_many_silent_connections_leave_when_they_are_closed(few):
    address, port = few.host.rsplit(":", 1)
    with ExitStack() as stack:
        for _ in range(150):
            raw = stack.enter_context(socket.create_connection((address, int(port))))
            raw.sendall(b"POST /answer HTTP/1.1\r\nContent-Length: 100\r\n")
        assert few.ask("/state")[0] == 200
    assert few.ask("/state")[0] == 200


class FullDisk:
    """A connection whose commits fail as on a full disk."""

    def __init__(self, connection):
        self.connection, self.full = connection, True

    def execute(self, statement, *values):
        if self.full and statement.startswith(("COMMIT", "INSERT")):
            raise sqlite3.OperationalError("database or disk is full")
        return self.connection.execute(statement, *values)

    def __getattr__(self, name):
        return getattr(self.connection, name)


@pytest.mark.parametrize("where", ["COMMIT", "INSERT"])
def test_an_answer_on_a_full_disk_is_refused_and_can_be_given_again(tmp_path, where):
    with closing(open_database(tmp_path)) as database:
        answers = Answers(database)
        real, database.connection = database.connection, FullDisk(database.connection)
        execute = FullDisk.execute
        database.connection.execute = lambda statement, *values: (
            execute(database.connection, statement, *values)
            if statement.startswith(where)
            else real.execute(statement, *values)
        )
        with pytest.raises(sqlite3.OperationalError, match="full"):
            answers.add({"kind": "new", "name": "a", "images": []}, "key")
        assert (answers.state.classes, answers.version) == ({}, 0)
        database.connection.full = False
        assert answers.add({"kind": "new", "name": "a", "images": []}, "key")
        assert answers.state.classes == {1: "a"}


def test_a_full_disk_is_named_to_the_page(few):
    database = few.running.session.answers.database
    database.connection = FullDisk(database.connection)
    status, problem = refused(few, "/answer", {"kind": "new", "name": "a", "images": []})
    said = "The answer cannot be written (database or disk is full)"
    assert (status, problem) == (507, said)
    database.connection.full = False
    assert few.say(kind="new", name="a", images=[])["classes"] == [[1, "a"]]


def test_on_a_full_disk_thumbnails_are_shown_all_the_same(few, tmp_path):
    reader = few.running.session.reader
    (image, *_) = reader.rows.images
    with closing(Thumbnails(tmp_path / "out")) as kept:
        kept.connection = FullDisk(kept.connection)
        path, digest = reader.rows.path_of(image), reader.rows.digest_of[image]
        assert kept.small(image, path, digest)[:2] == b"\xff\xd8"


def test_beyond_the_limit_the_thumbnails_made_first_are_dropped(few, tmp_path, monkeypatch):
    rows = few.running.session.reader.rows
    (tmp_path / "other").mkdir()
    with closing(Thumbnails(tmp_path / "other")) as kept:

        def make(image):
            return len(kept.small(image, rows.path_of(image), rows.digest_of[image]))

        first, second, third = rows.images[:3]
        monkeypatch.setattr(thumbnails, "MOST_BYTES", make(first) + make(second))
        size = make(third)
        assert kept.connection.execute("SELECT image FROM small").fetchall() == [(third,)]
        assert kept.bytes == size


def test_no_answer_is_acknowledged_into_a_folder_that_is_gone(own):
    with serving(own) as (running, client):
        client.until(lambda state: state["rows"] == 3)
        assert client.ask("/answer", {"kind": "new", "name": "a", "images": []})[0] == 200
        shutil.rmtree(own.folder)
        status, problem = refused(client, "/answer", {"kind": "new", "name": "b", "images": []})
        assert status == 507
        assert problem.endswith("labels.sqlite was moved or deleted: nothing can be kept")
        assert where_answers_are(own.folder).endswith(
            "labels.sqlite was moved or deleted while it ran, and the answers in it"
        )
        own.folder.mkdir()
        (own.folder / "labels.sqlite").write_bytes(b"")  # another file, at its place
        with pytest.raises(LostDatabaseError):
            running.session.answer({"kind": "new", "name": "c", "images": []})


def test_more_classes_than_there_may_be(few):
    """Those that come first are taken; nothing is shown as broken."""
    session = few.running.session
    session.answers.state.classes = {n: str(n) for n in range(1, MOST_CLASSES + 1)}
    for number in range(5):
        session.outside_labels._answer_by(f"more {number}", [1])
    said = session.outside_labels.problem
    assert said.count("1,000 classes are the maximum; merge or delete some") == 3
    assert said.endswith(" and 2 more")


def test_a_pile_that_goes_away_and_comes_back_is_watched_again(own):
    with serving(own) as (running, client):
        client.until(lambda state: state["rows"] == 3)
        reader, away = running.session.reader, own.pile.with_name("elsewhere")
        own.pile.rename(away)
        for problem in (True, False):
            changed = threading.Event()
            reader.changed = changed.set
            reader.look_again.set()
            assert changed.wait(60)
            assert ("is not a folder" in reader.progress.problem) == problem
            if problem:
                away.rename(own.pile)
        assert reader.progress.phase == "ready"


def test_what_comes_out_is_of_the_answers_given_until_then(few):
    """Asked for in the instant after an answer, before the pile is judged anew."""
    for number, image in enumerate(sorted(few.state()["image"])[:2], 1):
        few.json("/answer", {"kind": "new", "name": f"class {number}", "images": [image]})
        planned = few.json("/plan?how=copy&which=confirmed")
        assert sum(planned["folders"].values()) == number
    assert few.ask("/table/labels.csv?which=confirmed")[2].count(b"\n") == 3


def test_only_what_was_shown_is_applied(few, own):
    few.say(kind="new", name="a", images=few.state()["image"][:1])
    shown = few.json("/plan?how=copy")
    few.say(kind="new", name="b", images=few.state()["image"][1:2])
    asked = {"how": "copy", "which": "all", "version": shown["version"]}
    status, problem = refused(few, "/apply", asked)
    assert (status, problem) == (
        409,
        "there are new answers or files since then; this is the plan now",
    )
    assert not (own.folder / "sorted").exists()
    now = few.json("/plan?how=copy")["version"]
    assert few.json("/apply", {**asked, "version": now})["files"] == 3


def test_files_that_have_not_been_read_yet_are_counted_in_the_plan(few):
    few.say(kind="new", name="a", images=few.state()["image"][:1])
    reader = few.running.session.reader
    reader.status = {**reader.status, str(reader.request.pile / "unread.png"): (1, 1)}
    assert few.json("/plan?how=copy&which=confirmed")["left"] == 3


def test_answers_do_not_wait_for_a_sorting(few, monkeypatch):
    begun, goes_on = threading.Event(), threading.Event()

    def slow(*_):
        begun.set()
        assert goes_on.wait(60)
        return 0, []

    monkeypatch.setattr(finish, "apply", slow)
    sorting = threading.Thread(target=few.json, args=("/apply", {"how": "copy"}))
    sorting.start()
    assert begun.wait(60)
    try:
        assert few.say(kind="new", name="a", images=[])["classes"] == [[1, "a"]]
    finally:
        goes_on.set()
        sorting.join()


@pytest.mark.parametrize("name", [".", "..", "CON", "a/b", "\\", "~", "-rf", "x" * 100, "aux.txt"])
def test_any_name_of_a_class_is_one_folder_inside(few, own, name):
    few.say(kind="new", name=name, images=few.state()["image"])
    assert few.json("/apply", {"how": "copy", "which": "confirmed"})["files"] == 3
    (folder,) = (own.folder / "sorted").iterdir()
    assert len(list(folder.iterdir())) == 3
    assert few.json("/undo", {})["files"] == 3
    assert not (own.folder / "sorted").exists()


def test_one_image_and_many_copies_of_it(own):
    for number in range(1, 3):
        (own.pile / f"{number}.png").write_bytes((own.pile / "0.png").read_bytes())
    with serving(own) as (_, client):
        state = client.until(lambda state: state["rows"] == 1)
        assert state["copies"] == [3]
        state = client.say(kind="new", name="a", images=state["image"])
        assert state["said"] == [0]
        assert client.json("/apply", {"how": "move", "which": "all"})["files"] == 3
        assert client.json("/undo", {})["files"] == 3
