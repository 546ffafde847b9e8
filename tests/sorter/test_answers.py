"""Answers: the fold of events, undo and redo without limit, and no acknowledged answer lost to a kill."""

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest

from semishot.errors import InputError
from semishot.sorter.answer_state import MOST_CLASSES, ConflictError, State
from semishot.sorter.answers import Answers
from semishot.sorter.labels_database import DATABASE, open_database


@pytest.fixture
def database(tmp_path):
    with closing(open_database(tmp_path)) as opened:
        yield opened


def new(name, *images):
    return {"kind": "new", "name": name, "images": list(images)}


def said(value, *images):
    return {"kind": "answer", "set": [[value, list(images)]]}


def test_a_story_of_every_kind_of_answer(database):
    answers = Answers(database)
    for event in (new("crow", 1, 2), new("wren", 3), said(0, 4), said(1, 5)):
        assert answers.add(event)
    assert answers.state.classes == {1: "crow", 2: "wren"}
    assert answers.state.answers == {1: 1, 2: 1, 3: 2, 4: 0, 5: 1}
    answers.add({"kind": "not", "class": 1, "images": [5, 6]})
    assert answers.state.answers == {1: 1, 2: 1, 3: 2, 4: 0}
    assert answers.state.excluded == {5: {1}, 6: {1}}
    answers.add({"kind": "rename", "class": 1, "name": "raven"})
    answers.add({"kind": "apart", "images": [7]})
    answers.add({"kind": "reject", "value": 0.2})
    assert (answers.state.classes[1], answers.state.apart, answers.state.reject) == (
        "raven",
        {7},
        0.2,
    )
    answers.add({"kind": "merge", "class": 2, "into": 1})
    assert answers.state.answers == {1: 1, 2: 1, 3: 1, 4: 0}
    answers.add({"kind": "delete", "class": 1})
    assert (answers.state.classes, answers.state.answers) == ({}, {4: 0})
    assert answers.state.excluded == {}
    answers.add({"kind": "undo"})
    assert answers.state.excluded == {5: {1}, 6: {1}}
    answers.add(said(-1, 4))
    assert 4 not in answers.state.answers


def test_an_answer_given_twice_is_sure_until_it_is_changed(database):
    answers = Answers(database)
    answers.add(new("crow", 1))
    assert not answers.state.sure
    answers.add(said(1, 1))
    assert answers.state.sure == {1}
    answers.add(said(0, 1))
    assert not answers.state.sure


def random_event(rng, answers):
    classes = list(answers.state.classes)
    images = rng.integers(1, 30, rng.integers(1, 5)).tolist()
    kind = str(
        rng.choice(["new", "answer", "not", "rename", "merge", "delete", "undo", "redo", "apart"])
    )
    if kind == "new" or not classes:
        return new(f"class {rng.integers(10**9)}", *images)
    one = int(rng.choice(classes))
    more = {
        "answer": {"set": [[int(rng.choice([-1, 0, one])), images]]},
        "not": {"class": one, "images": images},
        "rename": {"class": one, "name": f"name {rng.integers(10**9)}"},
        "merge": {"class": one, "into": int(rng.choice(classes))},
        "delete": {"class": one},
        "apart": {"images": images},
    }
    return {"kind": kind, **more.get(kind, {})}


@pytest.mark.parametrize("seed", range(8))
def test_undo_and_redo_walk_through_the_states_there_were(tmp_path, seed):
    """The oracle keeps a copy of every state."""
    rng = np.random.default_rng(seed)
    with closing(open_database(tmp_path)) as database:
        answers = Answers(database)
        states, place = [deepcopy(answers.state)], 0
        for _ in range(150):
            event = random_event(rng, answers)
            try:
                answers.add(event)
            except ConflictError:
                assert answers.state == states[place]
                continue
            if event["kind"] == "undo":
                place -= 1
            elif event["kind"] == "redo":
                place += 1
            else:
                states[place + 1 :] = [deepcopy(answers.state)]
                place += 1
            assert answers.state == states[place]
        version = answers.version
    with closing(open_database(tmp_path)) as database:
        again = Answers(database)
        assert (again.state, again.version) == (states[place], version)
        while again.done:
            again.add({"kind": "undo"})
        assert again.state == State()


def test_a_request_that_is_repeated_counts_once(database):
    answers = Answers(database)
    assert answers.add(new("crow", 1), "a key")
    assert not answers.add(new("crow", 1), "a key")
    assert answers.version == 1


def test_answers_that_do_not_fit_change_nothing(database):
    answers = Answers(database)
    answers.add(new("crow", 1))
    before = deepcopy(answers.state)
    for event, reason in [
        (said(9, 1), "this class is gone"),
        (new("CROW"), "there is a class crow already"),
        ({"kind": "merge", "class": 1, "into": 1}, "cannot be merged with itself"),
        ({"kind": "redo"}, "nothing to redo"),
    ]:
        with pytest.raises(ConflictError, match=reason):
            answers.add(event)
    assert (answers.state, answers.version) == (before, 1)
    answers.state.classes = {n: str(n) for n in range(1, MOST_CLASSES + 1)}
    with pytest.raises(ConflictError, match="1,000 classes are the maximum"):
        answers.add(new("one more"))


def test_names_are_one_line_of_text(database):
    answers = Answers(database)
    answers.add(new("  <b>a</b>\n crow "))
    assert answers.state.classes == {1: "<b>a</b> crow"}


def test_a_damaged_event_is_named(tmp_path):
    with closing(open_database(tmp_path)) as database, database.transaction() as connection:
        connection.execute('INSERT INTO events (at, body) VALUES (0, \'{"kind": "drop"}\')')
    with (
        closing(open_database(tmp_path)) as database,
        pytest.raises(InputError, match="event 1: kind"),
    ):
        Answers(database)


KILLED = """
import os, random, signal, sys, time
from contextlib import closing
from pathlib import Path
from semishot.sorter.answers import Answers
from semishot.sorter.labels_database import open_database

out, rng, acknowledged = Path(sys.argv[1]), random.Random(0), 0

def answer_until_killed(said):
    answers = Answers(open_database(out))
    if not answers.state.classes:
        answers.add({"kind": "new", "name": "crow", "images": []})
    while True:
        answers.add({"kind": "answer", "set": [[1, [answers.version * 1000 + 1]]]})
        os.write(said, b"%d\\n" % answers.version)

for kill in range(int(sys.argv[2])):
    read, said = os.pipe()
    child = os.fork()
    if not child:
        answer_until_killed(said)
    os.close(said)
    lines = b"" if kill % 4 == 3 else os.read(read, 100)
    time.sleep(rng.uniform(0, 0.03))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    while part := os.read(read, 2**16):
        lines += part
    os.close(read)
    whole = lines[: lines.rfind(b"\\n") + 1].split()
    acknowledged = max([acknowledged, *map(int, whole)])
    with closing(open_database(out)) as database:
        answers = Answers(database)
        assert answers.version >= acknowledged, (kill, answers.version, acknowledged)
        assert len(answers.state.answers) == max(0, answers.version - 1), kill
        acknowledged = answers.version
print(acknowledged)
"""


def test_no_acknowledged_answer_is_lost_to_a_kill(tmp_path):
    """A process that answers as fast as it can is killed at any instant, 60 times."""
    command = [sys.executable, "-c", KILLED, str(tmp_path), "60"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert int(done.stdout) > 60


def test_events_are_plain_json_that_others_can_read(tmp_path):
    with closing(open_database(tmp_path)) as database:
        Answers(database).add(new("crow", 1))
    with closing(sqlite3.connect(Path(tmp_path) / DATABASE)) as connection:
        ((body,),) = connection.execute("SELECT body FROM events").fetchall()
    assert json.loads(body) == {"kind": "new", "name": "crow", "images": [1], "class": 1}
