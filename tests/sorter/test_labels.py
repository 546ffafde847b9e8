"""OUT/labels.sqlite: events and their fold, undo and redo, imports, and no answer lost to a kill."""

import stat
import subprocess
import sys
from contextlib import closing
from copy import deepcopy

import numpy as np
import pytest

from semishot.errors import InputError
from semishot.sorter.label_events import (
    BeginAudit,
    ConflictError,
    GiveAnswers,
    LabelState,
    MoveCutoff,
    NewClass,
    Redo,
    RemoveClass,
    RenameClass,
    RuleOut,
    SeparateCopies,
    Undo,
    read_event,
)
from semishot.sorter.labels import LostDatabaseError, open_store
from semishot.sorter.out_folder import DATABASE

DIGESTS = [bytes([n]) * 32 for n in range(6)]


@pytest.fixture
def store(tmp_path):
    with closing(open_store(tmp_path)) as opened:
        yield opened


def new(name, *images):
    return NewClass(name, list(images))


def answer(value, *images):
    return GiveAnswers([(value, list(images))])


def test_a_story_of_every_kind_of_answer(store):
    for event in (new("  crow\n", 1, 2), new("wren", 3), answer(0, 4), answer(1, 5)):
        assert store.add(event)
    assert store.state.classes == {1: "crow", 2: "wren"}
    assert store.state.answers == {1: 1, 2: 1, 3: 2, 4: 0, 5: 1}
    store.add(RuleOut(1, [5, 6]))
    assert store.state.answers == {1: 1, 2: 1, 3: 2, 4: 0}
    assert store.state.excluded == {5: {1}, 6: {1}}
    for event in (RenameClass(1, "raven"), SeparateCopies([7]), MoveCutoff(0.1), MoveCutoff(0.2)):
        store.add(event)
    state = store.state
    assert (state.classes[1], state.apart, state.reject) == ("raven", {7}, 0.2)
    store.add(RemoveClass(2, 1))
    assert store.state.answers == {1: 1, 2: 1, 3: 1, 4: 0}
    assert (store.title, store.next_title) == ("wren merged into raven", None)
    store.add(RemoveClass(1))
    assert (store.state.classes, store.state.answers) == ({}, {4: 0})
    assert store.state.excluded == {}
    store.add(Undo())
    assert (store.title, store.next_title) == ("wren merged into raven", "raven deleted")
    assert store.state.excluded == {5: {1}, 6: {1}}
    store.add(answer(-1, 4))
    assert 4 not in store.state.answers


def test_an_answer_given_twice_is_sure_until_it_is_changed(store):
    store.add(new("crow", 1))
    assert not store.state.sure
    store.add(answer(1, 1))
    assert store.state.sure == {1}
    store.add(answer(0, 1))
    assert not store.state.sure


def random_event(rng, state):
    images = rng.integers(1, 30, rng.integers(1, 5)).tolist()
    name, number = f"class {rng.integers(10**9)}", int(rng.choice([*state.classes, 0]))
    if not number:
        return new(name, *images)
    possible = [
        *(new(name, *images), answer(int(rng.choice([-1, 0, number])), *images)),
        *(RuleOut(number, images), RenameClass(number, name), RemoveClass(number)),
        *(RemoveClass(number, int(rng.choice([*state.classes]))), SeparateCopies(images)),
        *(MoveCutoff(0.5), BeginAudit(1, [(number, images)]), Undo(), Redo()),
    ]
    return possible[rng.integers(len(possible))]


@pytest.mark.parametrize("seed", range(4))
def test_undo_and_redo_walk_through_the_states_there_were(tmp_path, seed):
    """The oracle keeps a copy of every state; two processes take turns."""
    rng = np.random.default_rng(seed)
    with closing(open_store(tmp_path)) as first, closing(open_store(tmp_path)) as second:
        states, index = [deepcopy(first.state)], 0
        for _ in range(100):
            store = first if rng.random() < 0.5 else second
            event = random_event(rng, states[index])
            store.catch_up()
            moved_last = store.title == "cutoff moved"
            try:
                store.add(event)
            except ConflictError:
                assert store.state == states[index]
                continue
            if isinstance(event, Undo):
                index -= 1
            elif isinstance(event, Redo):
                index += 1
            else:
                index += not (isinstance(event, MoveCutoff) and moved_last)
                states[index:] = [deepcopy(store.state)]
            assert store.state == states[index]
        version = store.version
    with closing(open_store(tmp_path)) as again:
        assert (again.state, again.version) == (states[index], version)
        while again.done:
            again.add(Undo())
        assert again.state == LabelState()


def test_a_request_that_is_repeated_counts_once(store):
    assert store.add(new("crow", 1), "a key")
    assert not store.add(new("crow", 1), "a key")
    assert store.version == 1


def test_answers_that_do_not_fit_change_nothing(store):
    store.add(new("crow", 1))
    before = deepcopy(store.state)
    for event, reason in [
        (answer(9, 1), "this class is gone"),
        (new("CROW"), "there is a class crow already"),
        (RemoveClass(1, 1), "cannot be merged with itself"),
        (Redo(), "nothing to redo"),
    ]:
        with pytest.raises(ConflictError, match=reason):
            store.add(event)
    assert (store.state, store.version) == (before, 1)


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        ([], "expected `object`"),
        ({"kind": "drop"}, "kind: invalid value 'drop'"),
        ({"kind": "answer", "set": [[-2, [1]]]}, "set.*expected `int` >= -1"),
        ({"kind": "answer", "set": [[True, [1]]]}, "set.*expected `int`, got `bool`"),
        ({"kind": "answer", "set": [[0, [0.5]]]}, "set.*expected `int`, got `float`"),
        ({"kind": "rename", "class": 1}, "missing required field `name`"),
        ({"kind": "undo", "more": 1}, "unknown field more"),
        ({"kind": "reject", "value": float("nan")}, "value: expected `float`"),
    ],
)
def test_malformed_events_are_refused_in_one_line(event, reason):
    with pytest.raises(InputError, match=reason) as error:
        read_event(event)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (" ", "a class needs a name other than stranger"),
        ("Stranger", "a class needs a name other than"),
        ("a\x1bb", "must be printable"),
    ],
)
def test_names_that_no_class_can_have_are_refused(store, name, reason):
    with pytest.raises(InputError, match=reason):
        store.add(new(name))


def test_imported_labels_follow_what_is_labeled_and_the_page_has_the_last_word(store):
    a, b, c, d, *_ = DIGESTS

    def labels():
        return [store.label_of(digest) for digest in (a, b, c, d)]

    store.import_labels({a: "crow", b: "wren", c: "stranger"})
    assert labels() == ["crow", "wren", "stranger", None]
    version = store.version
    store.import_labels({a: "crow", b: "wren", c: "stranger"})
    assert store.version == version  # nothing new
    store.add(answer(2, *store.numbers([a])))  # on the page: a is a wren, b is cleared
    store.add(answer(-1, *store.numbers([b])))
    store.import_labels({a: "crow", b: "wren", d: "wren"})  # c was removed, d is new
    assert labels() == ["wren", None, None, "wren"]
    store.import_labels({a: "owl", b: "wren"})  # a was moved to another folder since
    assert labels() == ["owl", None, None, None]
    assert "crow" not in store.state.classes.values()  # nothing is left in it
    store.correct({a: "stranger", d: "OWL"})
    assert labels() == ["stranger", None, None, "owl"]
    store.import_labels({a: "owl", b: "wren"})
    assert labels() == ["stranger", None, None, "owl"]


def test_files_other_than_ours_are_refused_in_one_line(tmp_path):
    path = tmp_path / DATABASE
    path.write_bytes(b"not a database, but long enough to be taken for one" * 50)
    with pytest.raises(InputError, match="damaged, or not semishot's"):
        open_store(tmp_path)


def test_the_store_is_private_synced_and_never_written_through_a_link(tmp_path):
    with closing(open_store(tmp_path)) as store:
        assert store.rows("PRAGMA synchronous") == [(2,)]  # FULL
        assert stat.S_IMODE((tmp_path / DATABASE).stat().st_mode) == 0o600
        (tmp_path / DATABASE).rename(tmp_path / "elsewhere")
        with pytest.raises(LostDatabaseError, match="was moved or deleted"):
            store.add(new("crow"))
    (tmp_path / DATABASE).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="is a link or not a regular file"):
        open_store(tmp_path)


def test_a_damaged_event_is_named(tmp_path):
    with closing(open_store(tmp_path)) as store, store.transaction() as connection:
        connection.execute('INSERT INTO events (at, body) VALUES (0, \'{"kind": "drop"}\')')
    with pytest.raises(InputError, match="event 1: event: kind"):
        open_store(tmp_path)


KILLED = """
import os, random, signal, sys, time
from contextlib import closing
from pathlib import Path
from semishot.sorter.label_events import GiveAnswers, NewClass
from semishot.sorter.labels import open_store

out, rng, acknowledged = Path(sys.argv[1]), random.Random(0), 0

def answer_until_killed(pipe):
    store = open_store(out)
    if not store.state.classes:
        store.add(NewClass("crow", []))
    while True:
        store.add(GiveAnswers([(1, [store.version * 1000 + 1])]))
        os.write(pipe, b"%d\\n" % store.version)

for kill in range(int(sys.argv[2])):
    read, pipe = os.pipe()
    child = os.fork()
    if not child:
        answer_until_killed(pipe)
    os.close(pipe)
    lines = b"" if kill % 4 == 3 else os.read(read, 100)
    time.sleep(rng.uniform(0, 0.03))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    while part := os.read(read, 2**16):
        lines += part
    os.close(read)
    whole = lines[: lines.rfind(b"\\n") + 1].split()
    acknowledged = max([acknowledged, *map(int, whole)])
    with closing(open_store(out)) as store:
        assert store.version >= acknowledged, (kill, store.version, acknowledged)
        assert len(store.state.answers) == max(0, store.version - 1), kill
        acknowledged = store.version
print(acknowledged)
"""


def test_no_acknowledged_answer_is_lost_to_a_kill(tmp_path):
    """A process that answers as fast as it can is killed at any instant, 40 times."""
    command = [sys.executable, "-c", KILLED, str(tmp_path), "40"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert int(done.stdout) > 40
