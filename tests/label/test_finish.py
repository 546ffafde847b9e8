"""What comes out of labeling: tables, sorted files that can be undone, a model that predicts."""

import csv
import io
import json
from datetime import datetime
from pathlib import Path
from xml.etree import ElementTree

import pytest

from semishot.label import LabelRequest
from semishot.sorter.predict import predict
from semishot.sorter.requests import PredictRequest
from support.labeling import label_some, serving
from support.own_images import MEMBERS, draw, save


def table(client, name, which="all"):
    status, headers, content = client.ask(f"/table/{name}?which={which}")
    assert (status, headers["content-type"]) == (200, "text/csv; charset=utf-8")
    return list(csv.DictReader(io.StringIO(content.decode())))


def test_tables_for_people_and_for_image_folder(client, asked):
    names = label_some(client)
    client.say(kind="answer", set=[[0, [names["dots-0.png"]]]])
    rows = table(client, "labels.csv")
    assert list(rows[0]) == ["path", "label", "probability", "stranger_probability", "source"]
    assert len(rows) == 48
    assert (asked.folder / "labels.csv").exists()
    confirmed = table(client, "labels.csv", "confirmed")
    assert len(confirmed) == 10
    assert {row["source"] for row in confirmed} == {"confirmed"}
    assert [row["label"] for row in confirmed if "dots-0" in row["path"]] == ["stranger"]
    for row in rows:
        assert 0 <= float(row["probability"]) <= 1
    known = table(client, "metadata.csv", "confirmed")
    assert {row["file_name"]: row["label"] for row in known} == {
        f"more/{kind}-{n}.png": kind for kind in MEMBERS for n in range(3)
    }
    assert client.ask("/table/other.csv")[0] == 404
    assert client.ask("/table/labels.csv?which=some")[0] == 400


def test_names_that_begin_like_formulas_are_harmless_in_tables(cache, tmp_path):
    pile = tmp_path / "pile"
    save(draw("cross", 1), pile / "=cmd.png")
    save(draw("cross", 2), pile / "b.png")
    asked = LabelRequest(pile, out=tmp_path / "out", encoder="omniglot", cache=cache, device="cpu")
    with serving(asked, 2) as (_, client):
        client.say(kind="new", name="=1+1", images=[1])
        assert {row["file_name"] for row in table(client, "metadata.csv")} <= {
            "./=cmd.png",
            "b.png",
        }
        assert {row["label"] for row in table(client, "metadata.csv")} == {"'=1+1"}


def test_exports_for_other_tools_name_the_same_decisions(client, asked):
    names = label_some(client)
    client.say(kind="rename", **{"class": 1}, name="<round> & open")
    client.say(kind="answer", set=[[0, [names["dots-0.png"]]]])
    decided = {row["path"]: row for row in table(client, "labels.csv")}
    coco = json.loads(client.ask("/table/coco.json?which=all")[2])
    files, classes = ({each["id"]: each for each in coco[key]} for key in ("images", "categories"))
    found = {
        str(asked.pile / files[each["image_id"]]["file_name"]): classes[each["category_id"]]["name"]
        for each in coco["annotations"]
    }
    members = {path: row["label"] for path, row in decided.items() if row["label"] != "stranger"}
    assert found == members
    assert len(files) == 48
    rows = {str(asked.pile / row["mediaID"]): row for row in table(client, "observations.csv")}
    for path, row in decided.items():
        animal = row["label"] != "stranger"
        assert rows[path]["observationType"] == ("animal" if animal else "unclassified")
        assert rows[path]["scientificName"] == (row["label"] if animal else "")
        human = rows[path]["classificationMethod"] == "human"
        assert human == (row["source"] == "confirmed")
        assert datetime.fromisoformat(rows[path]["eventStart"]).tzinfo is not None
    assert client.json("/keywords", {"which": "all"})["files"] == len(members)
    for path, label in members.items():
        sidecar = asked.folder / "keywords" / f"{Path(path).relative_to(asked.pile)}.xmp"
        assert ElementTree.parse(sidecar).find(".//{*}subject//{*}li").text == label
    assert len(list((asked.folder / "keywords").rglob("*.xmp"))) == len(members)


@pytest.mark.parametrize("how", ["copy", "move", "link"])
def test_apply_does_what_the_plan_says_and_undo_takes_it_back(asked_own, how):
    asked, pile = asked_own, asked_own.pile
    before = {path.name: path.read_bytes() for path in pile.iterdir()}
    with serving(asked, 48) as (running, client):
        names = label_some(client)
        client.say(kind="answer", set=[[0, [names["dots-0.png"]]]])
        plan = client.json(f"/plan?how={how}&which=confirmed")
        assert plan["folders"] == {"circle": 3, "cross": 3, "stranger": 1, "stripes": 3}
        assert (plan["files"], plan["left"], plan["sorting"]) == (10, 38, None)
        assert not (asked.folder / "sorted").exists()
        assert client.json("/apply", {"how": how, "which": "confirmed"})["files"] == 10
        sorted_files = [p for p in (asked.folder / "sorted").rglob("*") if p.is_file()]
        assert len(sorted_files) == 10
        assert len(list(pile.iterdir())) == (38 if how == "move" else 48)
        other = {"copy": "move", "move": "link", "link": "copy"}[how]
        assert client.ask("/apply", {"how": other, "which": "all"})[0] == 400
        assert client.json(f"/plan?how={how}")["sorting"] == {"how": how, "files": 10, "done": True}
        running.session.pile.look_again.set()
        state = client.say(kind="reject", value=0.1)
        assert state["rows"] == 48
        assert client.ask(f"/thumb/{names['circle-0.png']}")[0] == 200
        assert client.json("/undo", {})["files"] == 10
    assert {path.name: path.read_bytes() for path in pile.iterdir()} == before
    assert not (asked.folder / "sorted").exists()


def test_the_saved_model_predicts(client, asked, tmp_path):
    assert "needs a labeled image" in json.loads(client.ask("/model", {})[2])["problem"]
    label_some(client)
    client.json("/model", {})
    path = save(draw("stripes", 500), tmp_path / "x.png")
    found, _ = predict(PredictRequest(asked.folder / "model", (path,), device="cpu"))
    assert found[0].label == "stripes"
