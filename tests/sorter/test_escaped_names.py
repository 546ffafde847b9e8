"""Files and classes whose names are not UTF-8: sorted, corrected, read back from tables, and put back."""

import csv
from pathlib import Path

import pytest

from semishot.label import LabelRequest
from semishot.sorter.escaped_names import escaped, unescaped, written_path
from support.commands import printed
from support.labeling import serving
from support.own_images import DRAWN, folders

GIVEN = ["classify", "--labeled", "labeled", "--unlabeled", "pile", "--out", "out", *DRAWN]
ODD, OTHER = "dots-\udce9.png", "circle-\udcff\udcfe.png"


@pytest.fixture(autouse=True)
def pile(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    labeled, pile = folders(tmp_path)
    try:
        (pile / "dots-0.png").rename(pile / ODD)
    except OSError:
        pytest.skip("this file system has names in UTF-8 only")
    (pile / "more/circle-0.png").rename(pile / "more" / OTHER)
    (labeled / "cross/0.png").rename(labeled / "cross/0\udce9.png")
    (labeled / "stripes").rename(labeled / "stri\udcffpes")
    return pile


def correct(name: str, label: str) -> None:
    """Write a correction as a person would, in the row of a name as it is shown."""
    with Path("out/predictions.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    (row,) = [row for row in rows if row[0].endswith(name)]
    row[rows[0].index("correct")] = label
    with Path("out/predictions.csv").open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)


def skipped(out: str) -> list[str]:
    return Path(out, "skipped.csv").read_text().splitlines()[1:]


@pytest.mark.parametrize("name", [ODD, OTHER, "é-ü.png", "plain.png", "a\\b.png", "\\udc00.png"])
def test_a_name_is_read_as_it_was_written(name):
    assert unescaped(escaped(name).decode()) == name


def test_a_file_that_has_an_escape_as_its_name_is_that_file(tmp_path):
    cell = "dots-\\udce9.png"
    assert written_path(cell, tmp_path / "pile") == ODD
    (tmp_path / "pile" / cell).touch()
    assert written_path(cell, tmp_path / "pile") == cell


@pytest.mark.parametrize("how", ["copy", "move"])
def test_its_corrections_count_and_the_table_is_read_back(capsys, pile, how):
    """Its row in predictions.csv was of no file: a correction was put off, and the table skipped it."""
    printed(capsys, *GIVEN, "--apply", how)
    assert skipped("out") == []
    correct("dots-\\udce9.png", "stri\\udcffpes")
    said = printed(capsys, *GIVEN, "--apply", how)
    assert "Note: 1 correction is used." in said
    assert "classes that only corrections name" not in said
    assert Path("out/sorted/stri%ED%B3%BFpes", ODD).is_file()
    printed(capsys, "undo", "out")
    assert {ODD} == {path.name for path in pile.glob("dots-*") if not path.stem[5:].isdigit()}
    table = ["classify", "--labeled", "out/predictions.csv", "--out", "again", *DRAWN]
    said = printed(capsys, *table, "--apply", "copy")
    assert "10 labeled images of 3 classes, 23 images in the pile" in said
    assert skipped("again") == []
    assert (Path("again/sorted/circle") / OTHER).is_file()


def test_label_serves_it_and_its_table_is_read_back(capsys, pile):
    asked = LabelRequest(pile, out=Path("out"), encoder="omniglot", device="cpu")
    with serving(asked) as (_, client):
        client.until(lambda state: state["rows"] == 24)
        names = client.names()
        assert client.ask(f"/thumb/{names[ODD]}")[0] == 200
        client.say(kind="new", name="dotted", images=[names[ODD]])
        client.say(kind="new", name="round", images=[names[OTHER]])
        status, _, table = client.ask("/table/labels.csv?which=confirmed")
        assert (status, table.count(b"\n")) == (200, 3)
        client.json("/apply", {"how": "move", "which": "confirmed"})
        assert Path("out/sorted/dotted", ODD).is_file()
        assert client.json("/undo", {})["files"] == 2
    assert (pile / ODD).is_file()
    given = ["classify", "--labeled", "out/labels.csv", "--unlabeled", "pile", "--out", "again"]
    assert "2 labeled images of 2 classes" in printed(capsys, *given, *DRAWN)
    assert skipped("again") == []
