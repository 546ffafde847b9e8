"""`label` and `classify` on one OUT: each continues from what the other left."""

import csv
import os
from dataclasses import replace

import pytest
from PIL import Image

from semishot.errors import InputError
from semishot.label.requests import LabelRequest
from semishot.sorter.classify import classify
from semishot.sorter.moving.move_files import undo
from semishot.sorter.requests import ClassifyRequest
from support.labeling import label_some, serving
from support.own_images import MEMBERS, save


@pytest.fixture
def own(drawings, cache, tmp_path):
    """A pile of its own, which may be moved; requests of `label` and of `classify` for it."""
    pile, out = tmp_path / "pile", tmp_path / "out"
    for path in sorted(drawings[1].rglob("*.png")):
        save(Image.open(path), pile / path.name)
    asked = LabelRequest(pile, out=out, encoder="omniglot", cache=cache, device="cpu")
    sort = ClassifyRequest(
        drawings[0], out, unlabeled=pile, encoder="omniglot", cache=cache, device="cpu"
    )
    return asked, sort


def corrections(out):
    """File -> what predictions.csv says was corrected."""
    with (out / "predictions.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    return {row["path"].rsplit("/", 1)[-1]: row["correct"] for row in rows if row["correct"]}


def labels(client):
    """File -> the name of its answer."""
    state = client.state()
    said = dict(zip(state["image"], state["said"], strict=True))
    return {
        name: "none" if said[image] == -2 else state["classes"][said[image]][1]
        for name, image in client.names(state).items()
        if said[image] != -1
    }


def two_are_dotted(client):
    """The first answers to a pile of 48; the images by name."""
    client.until(lambda state: state["rows"] == 48)
    names = client.names()
    client.say(kind="new", name="dotted", images=[names["dots-0.png"], names["dots-1.png"]])
    return names


def test_classify_continues_from_answers(own):
    asked, sort = own
    with serving(asked) as (_, client):
        names = two_are_dotted(client)
        client.say(kind="new", name="circle", images=[names["circle-0.png"]])
        client.say(kind="answer", set=[[0, [names["dots-2.png"]]]])
    found = classify(sort)
    assert found.summary.labeled == {"circle": 4, "cross": 3, "dotted": 2, "stripes": 3}
    assert found.summary.named_strangers == 1
    assert corrections(asked.folder) == {
        "dots-0.png": "dotted",
        "dots-1.png": "dotted",
        "dots-2.png": "stranger",
        "circle-0.png": "circle",
    }
    answers = asked.folder / "labels.sqlite"
    alone = classify(replace(sort, labeled=answers, out=asked.folder / "again"))
    assert alone.summary.labeled == {"circle": 1, "dotted": 2}
    with pytest.raises(InputError, match="is not a file; `semishot label` keeps answers there"):
        classify(replace(sort, labeled=sort.labeled / "labels.sqlite"))
    with pytest.raises(InputError, match="holds answers: pass --unlabeled, the folder of the pile"):
        classify(replace(sort, labeled=answers, unlabeled=None))


def test_answers_about_a_pile_that_was_moved_are_not_forgotten_silently(own):
    asked, sort = own
    with serving(asked) as (_, client):
        two_are_dotted(client)
    moved = replace(sort, unlabeled=asked.pile.rename(asked.pile.with_name("moved")))
    end = "not there; started on the pile where it is now, it finds them by their content"
    notes = classify(moved).summary.notes
    assert f"2 answers of `semishot label` are of files that are {end}" in notes
    alone = replace(moved, labeled=asked.folder / "labels.sqlite", out=asked.folder / "again")
    with pytest.raises(
        InputError, match="no answer in .* is about a file that is there: name some"
    ):
        classify(alone)
    with serving(replace(asked, pile=moved.unlabeled, out=asked.folder)) as (_, client):
        client.until(lambda state: state["rows"] == 57)  # nine are labeled elsewhere
    found = classify(moved)
    assert found.summary.labeled["dotted"] == 2
    assert not any("not there" in note for note in found.summary.notes)


def test_the_later_of_an_answer_and_a_written_correction_counts(own):
    asked, sort = own
    classify(sort)
    path = asked.folder / "predictions.csv"
    text = path.read_text().splitlines()
    column = text[0].split(",").index("correct")
    rows = [line.split(",") for line in text]
    for row in rows:
        if row[0].endswith("dots-3.png"):
            row[column] = "cross"
    path.write_text("\n".join(map(",".join, rows)) + "\n")
    with serving(asked) as (_, client):
        client.until(lambda _: labels(client).get("dots-3.png") == "cross")
        names = client.names()
        client.say(kind="answer", set=[[0, [names["dots-3.png"]]]])
    os.utime(path, (1, 1))  # written before the answer
    classify(sort)
    assert corrections(asked.folder) == {"dots-3.png": "stranger"}
    with serving(asked) as (_, client):  # what classify wrote is not news
        client.until(lambda _: labels(client).get("dots-3.png") == "none")
        client.say(kind="answer", set=[[-1, [client.names()["dots-3.png"]]]])
    os.utime(path, (1, 1))
    classify(sort)
    assert corrections(asked.folder) == {}


def test_label_continues_from_classify(own):
    """Labels of another folder, files moved by hand, and a sorting that is not undone to sort again."""
    asked, sort = own
    classify(replace(sort, apply="move"))
    folder = asked.folder / "sorted"
    (moved,) = folder.rglob("dots-4.png")
    (folder / "dotted").mkdir()
    moved.rename(folder / "dotted" / moved.name)
    with serving(asked) as (_, client):
        state = client.until(
            lambda state: state["rows"] == 57 and state["cutoffs"] and state["event"] > 3
        )
        assert {name for _, name in state["classes"]} == {*MEMBERS, "dotted"}
        client.until(lambda _: labels(client).get("dots-4.png") == "dotted")
        assert sum(value != -1 for value in state["said"]) == 10
        assert set(state["flags"]) == {0, 4}
        names = client.names()
        assert client.ask(f"/large/{names['dots-4.png']}")[0] == 200
        (number,) = (number for number, name in state["classes"] if name == "dotted")
        client.say(kind="answer", set=[[number, [names["dots-5.png"]]]])
        refused = client.ask("/apply", {"how": "copy", "which": "all"})
        assert refused[0] == 400
        assert b"was sorted by move: choose that to sort it again" in refused[2]
        assert client.json("/apply", {"how": "move", "which": "all"})["problems"] == []
        assert {path.name for path in (folder / "dotted").iterdir()} >= {
            "dots-4.png",
            "dots-5.png",
        }
        assert len(list(folder.rglob("*.png"))) == 48
    assert not list(asked.pile.rglob("*.png"))
    undo(asked.folder)
    assert len(list(asked.pile.rglob("*.png"))) == 48


@pytest.mark.parametrize("how", ["copy", "link"])
def test_a_pile_that_was_moved_since_is_sorted_again_without_doubles(own, how):
    """Each file was copied or linked a second time, as name~2, and files moved by hand were forgotten."""
    asked, _ = own
    with serving(asked) as (_, client):
        client.until(lambda state: state["rows"] == 48)
        label_some(client)
        client.json("/apply", {"how": how, "which": "confirmed"})
    sorted_now = asked.folder / "sorted"
    (sorted_now / "circle/circle-0.png").rename(sorted_now / "cross/circle-0.png")
    moved = replace(asked, pile=asked.pile.rename(asked.pile.with_name("elsewhere")))
    with serving(moved) as (_, client):
        client.until(lambda _: labels(client).get("circle-0.png") == "cross")
        client.json("/apply", {"how": how, "which": "confirmed"})
        assert {path.name for path in sorted_now.rglob("*.png")} == {
            f"{kind}-{n}.png" for kind in MEMBERS for n in range(3)
        }
        assert (sorted_now / "cross/circle-0.png").read_bytes()  # it leads to a file
        assert client.json("/undo", {})["files"] == 9
