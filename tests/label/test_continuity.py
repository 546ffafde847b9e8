"""`label` and `classify` on one OUT: each continues from what the other left."""

import csv
from dataclasses import replace

import pytest

from semishot.sorter.classify import classify
from semishot.sorter.moving.move_files import undo
from semishot.sorter.requests import ClassifyRequest
from support.labeling import label_some, serving
from support.own_images import MEMBERS


@pytest.fixture
def sort(asked_own, drawings) -> ClassifyRequest:
    """`classify` for the same pile and OUT."""
    asked = asked_own
    return ClassifyRequest(
        asked.folder,
        drawings[0],
        unlabeled=asked.pile,
        encoder="omniglot",
        cache=asked.cache,
        device="cpu",
    )


def answers(client):
    """File -> the name of its class."""
    state = client.state()
    said = dict(zip(state["image"], state["said"], strict=True))
    names = client.names(state).items()
    return {name: state["classes"][said[i]][1] for name, i in names if said[i] != -1}


def test_classify_continues_from_answers(asked_own, sort):
    with serving(asked_own, 48) as (_, client):
        names = client.names()
        client.say(kind="new", name="dotted", images=[names["dots-0.png"], names["dots-1.png"]])
        client.say(kind="new", name="circle", images=[names["circle-0.png"]])
        client.say(kind="answer", set=[[0, [names["dots-2.png"]]]])
    summary = classify(sort).summary
    assert summary.labeled == {"circle": 4, "cross": 3, "dotted": 2, "stripes": 3}
    assert summary.named_strangers == 1


def test_label_continues_from_classify(asked_own, sort):
    """A sorting by `classify` is not undone to be sorted again."""
    classify(replace(sort, apply="move"))
    asked, folder = replace(asked_own, labeled=sort.labeled), asked_own.folder / "sorted"
    with serving(asked) as (_, client):
        state = client.until(lambda state: state["rows"] == 57 and state["judged"])
        assert {name for _, name in state["classes"]} == set(MEMBERS)
        assert sum(value != -1 for value in state["said"]) == 9
        assert set(state["copies"]) == {1}
        names = client.names()
        assert client.ask(f"/large/{names['dots-4.png']}")[0] == 200
        client.say(kind="new", name="dotted", images=[names["dots-4.png"], names["dots-5.png"]])
        status, problem = client.refused("/apply", {"how": "copy", "which": "all"})
        assert (status, "was sorted by move: choose that" in problem) == (400, True)
        assert client.json("/apply", {"how": "move", "which": "all"})["problems"] == []
        dotted = {path.name for path in (folder / "dotted").iterdir()}
        assert dotted >= {"dots-4.png", "dots-5.png"}
        assert len(list(folder.rglob("*.png"))) == 48
    assert not list(asked.pile.rglob("*.png"))
    undo(asked.folder)
    assert len(list(asked.pile.rglob("*.png"))) == 48


def test_answers_follow_a_pile_that_was_moved(asked_own):
    with serving(asked_own, 48) as (_, client):
        label_some(client)
        before = answers(client)
    moved = replace(asked_own, pile=asked_own.pile.rename(asked_own.pile.with_name("elsewhere")))
    with serving(moved) as (_, client):
        client.until(lambda state: state["rows"] == 48 and state["judged"])
        assert answers(client) == before
        assert client.ask("/table/labels.csv")[0] == 200
    with (asked_own.folder / "labels.csv").open(newline="") as file:
        assert all("elsewhere" in row["path"] for row in csv.DictReader(file))


def test_a_pile_whose_files_were_moved_goes_elsewhere_with_its_out(asked_own, tmp_path):
    with serving(asked_own, 48) as (_, client):
        label_some(client)
        assert client.json("/apply", {"how": "move", "which": "all"})["files"] == 48
    (tmp_path / "there").mkdir()
    pile, out = (
        path.rename(tmp_path / "there" / path.name) for path in (asked_own.pile, asked_own.folder)
    )
    with serving(replace(asked_own, pile=pile, out=out)) as (_, client):
        state = client.until(lambda state: state["rows"] == 48 and state["judged"])
        assert set(state["copies"]) == {1}
        assert client.json("/undo", {})["files"] == 48
    assert len(list(pile.iterdir())) == 48


def test_labels_that_classify_adds_while_the_page_is_open_arrive_there(asked_own, sort):
    with serving(asked_own, 48) as (_, client):
        classify(sort)
        state = client.until(lambda state: state["classes"])
        assert {name for _, name in state["classes"]} == set(MEMBERS)
    with serving(asked_own, 57) as (_, client):  # images elsewhere teach by their cached features
        state = client.until(lambda state: state["judged"])
        assert sum(value != -1 for value in state["said"]) == 9
