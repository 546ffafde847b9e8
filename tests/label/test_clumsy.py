"""What nobody meant: odd requests, full disks, folders that go away, plans that are out of date."""

import shutil
import sqlite3
import threading

import pytest

from support.labeling import serving


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"kind": ["undo"]}, "kind"),
        ({"kind": "answer", "set": [[0.5, [1]]]}, "expected `int`, got `float`"),
        ({"kind": "reject", "value": 2}, "value: expected"),
        ({"kind": "new", "name": "a\u202eb", "images": []}, "must be printable"),
    ],
)
def test_odd_values_are_refused_in_one_line(few, body, reason):
    status, problem = few.refused("/answer", body)
    assert (status, reason in problem) == (400, True), problem


def test_an_answer_for_another_pile_is_dropped(few):
    """A tab keeps what it could not send; another pile may be at its address meanwhile."""
    expected = 409, "this answer was given for another pile, and is dropped"
    assert few.refused("/answer", {"kind": "undo", "pile": "another"}) == expected
    event = {"kind": "new", "name": "a", "images": [], "pile": few.state()["pile"]}
    assert few.ask("/answer", event)[0] == 200


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


def test_a_full_disk_is_named_to_the_page_and_the_answer_can_be_given_again(few):
    store = few.running.session.store
    store.connection = FullDisk(store.connection)
    expected = 507, "The answer cannot be written (database or disk is full)"
    assert few.refused("/answer", {"kind": "new", "name": "a", "images": []}) == expected
    store.connection.full = False
    assert few.say(kind="new", name="a", images=[])["classes"] == [[1, "a"]]


def test_no_answer_is_acknowledged_into_a_folder_that_is_gone(asked_few):
    with serving(asked_few, 3) as (_, client):
        assert client.ask("/answer", {"kind": "new", "name": "a", "images": []})[0] == 200
        shutil.rmtree(asked_few.folder)
        status, problem = client.refused("/answer", {"kind": "new", "name": "b", "images": []})
        assert status == 507
        assert problem.endswith("labels.sqlite was moved or deleted: nothing can be kept")
        for path in ("/table/labels.csv", "/plan?how=copy"):
            assert client.ask(path)[0] == 507
        assert not asked_few.folder.exists()


def test_a_pile_that_goes_away_and_comes_back_is_watched_again(asked_few):
    with serving(asked_few, 3) as (running, _):
        reader, away = running.session.pile, asked_few.pile.with_name("elsewhere")
        asked_few.pile.rename(away)
        for problem in (True, False):
            changed = threading.Event()
            reader.changed = changed.set
            reader.look_again.set()
            assert changed.wait(60)
            assert ("is not a folder" in reader.progress.problem) == problem
            if problem:
                away.rename(asked_few.pile)
        assert reader.progress.phase == "ready"


def test_what_comes_out_is_of_the_answers_given_until_then(few):
    """Asked for in the instant after an answer, before the pile is sorted anew."""
    for number, image in enumerate(sorted(few.state()["image"])[:2], 1):
        few.json("/answer", {"kind": "new", "name": f"class {number}", "images": [image]})
        planned = few.json("/plan?how=copy&which=confirmed")
        assert sum(planned["folders"].values()) == number
    assert few.ask("/table/labels.csv?which=confirmed")[2].count(b"\n") == 3


def test_only_what_was_shown_is_applied(few, asked_few):
    few.say(kind="new", name="a", images=few.state()["image"][:1])
    shown = few.json("/plan?how=copy")
    few.say(kind="new", name="b", images=few.state()["image"][1:2])
    body = {"how": "copy", "which": "all", "version": shown["version"]}
    line = "there are new answers or files since then; this is the plan now"
    assert few.refused("/apply", body) == (409, line)
    assert not (asked_few.folder / "sorted").exists()
    now = few.json("/plan?how=copy")["version"]
    assert few.json("/apply", {**body, "version": now})["files"] == 3


@pytest.mark.parametrize("name", ["..", "CON", "a/b", "\\", "-rf", "x" * 100])
def test_any_name_of_a_class_is_one_folder_inside(few, asked_few, name):
    few.say(kind="new", name=name, images=few.state()["image"])
    assert few.json("/apply", {"how": "copy", "which": "confirmed"})["files"] == 3
    (folder,) = (asked_few.folder / "sorted").iterdir()
    assert len(list(folder.iterdir())) == 3
    assert few.json("/undo", {})["files"] == 3
    assert not (asked_few.folder / "sorted").exists()
