"""What the user said, in folders, tables and corrections: imported into OUT/labels.sqlite, and never lost."""

import csv
import json
import shutil
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from semishot.sorter.label_events import GiveAnswers
from semishot.sorter.label_tables import written_path
from semishot.sorter.labels import open_store
from support.commands import classified, printed, refusal
from support.own_images import DRAWN, draw, folders, save

TABLE = ["classify", "--labeled", "out/predictions.csv", "--out", "out", *DRAWN]
ODD, BREAK = "dots-\udce9.png", "circle\r=1.png"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def given(tmp_path) -> list[str]:
    folders(tmp_path)
    return ["classify", "--labeled", "labeled", "--unlabeled", "pile", "--out", "out", *DRAWN]


def rows(path="out/predictions.csv") -> dict[str, dict[str, str]]:
    """By path."""
    with Path(path).open(encoding="utf-8-sig", newline="") as file:
        return {row["path"]: row for row in csv.DictReader(file)}


def edit(changes: dict[str, dict[str, str]], path="out/predictions.csv", delimiter=",") -> None:
    """As a spreadsheet would save it: with a byte order mark and its own line ends."""
    table = rows(path)
    for name, cells in changes.items():
        table[name].update(cells)
    with Path(path).open("w", encoding="utf-8-sig", newline="") as file:
        writer = csv.DictWriter(file, list(next(iter(table.values()))), delimiter=delimiter)
        writer.writeheader()
        writer.writerows(table.values())


def result() -> dict:
    return json.loads(Path("out/result.json").read_text())


def sorted_files() -> set[str]:
    return {p.relative_to("out/sorted").as_posix() for p in Path("out/sorted").rglob("*.png")}


def test_corrections_of_a_table_are_imported_and_stay_without_it(capsys, given):
    printed(capsys, *given)
    correct = {
        "pile/more/circle-0.png": {"correct": " Cross "},
        "pile/dots-0.png": {"correct": "STRANGER"},
        "pile/dots-1.png": {"correct": "dots"},
        "labeled/cross/0.png": {"correct": "circle"},
    }
    edit(correct, delimiter=";")
    Path("pile").rename("renamed")  # images are known by their content
    refused = refusal(capsys, *[word.replace("pile", "renamed") for word in given])
    assert "out/predictions.csv has 4 corrections: pass --labeled out/predictions.csv" in refused
    Path("renamed").rename("pile")
    commands = [TABLE, TABLE, given, [word.replace("pile", "renamed") for word in given]]
    for command in commands:
        if "renamed" in command:
            Path("pile").rename("renamed")
        said = printed(capsys, *command)
        assert "11 labeled images of 4 classes, 1 named stranger, 21 images in the pile" in said
        assert "Note: 3 corrections are used." in said
        assert "Note: classes that only corrections name: dots." in said
        assert result()["labeled"] == {"circle": 4, "cross": 3, "dots": 1, "stripes": 3}
        assert len(rows()) == 33
        assert not any(row["correct"] for row in rows().values())
    decided = {Path(name).name: (row["label"], row["decision"]) for name, row in rows().items()}
    assert decided["circle-0.png"] == ("cross", "corrected")
    assert decided["dots-0.png"] == ("stranger", "corrected")
    assert rows()["labeled/cross/0.png"]["label"] == "circle"


def test_names_of_classes_that_differ_in_case_or_outer_spaces_are_one_class(capsys, given):
    save(draw("cross", 50), Path("labeled/Cross /9.png"))
    printed(capsys, *given)
    assert result()["labeled"] == {"Cross": 4, "circle": 3, "stripes": 3}
    edit({"pile/dots-0.png": {"correct": "cross"}})
    printed(capsys, *TABLE)
    assert rows()["pile/dots-0.png"]["label"] == "Cross"


def test_labels_follow_the_folder_and_answers_have_the_last_word(capsys, given):
    printed(capsys, *given)
    Path("labeled/cross/0.png").rename("labeled/circle/was a cross.png")
    shutil.copy("labeled/stripes/0.png", "pile/copy.png")
    Path("labeled/stripes/0.png").unlink()
    said = printed(capsys, *given)
    assert result()["labeled"] == {"circle": 4, "cross": 2, "stripes": 2}
    assert "correction" not in said
    with closing(open_store(Path("out"))) as store:
        crosses = [n for n, answer in store.state.answers.items() if answer == 2]
        store.add(GiveAnswers([(0, crosses[:1])]))
    printed(capsys, *given)
    assert result()["labeled"] == {"circle": 4, "cross": 1, "stripes": 2}
    assert result()["named_strangers"] == 1
    for out in ("out", "another"):
        store = ["classify", "--labeled", "out/labels.sqlite", "--unlabeled", "pile", "--out", out]
        printed(capsys, *store, *DRAWN)
        labeled = json.loads(Path(out, "result.json").read_text())["labeled"]
        assert labeled == {"circle": 4, "cross": 1, "stripes": 2}


def test_corrections_of_files_that_cannot_be_read_are_kept(capsys, given):
    printed(capsys, *given)
    edit({"pile/dots-0.png": {"correct": "stranger"}})
    content = Path("pile/dots-0.png").read_bytes()
    Path("pile/dots-0.png").write_bytes(b"")
    line = "1 labeled image is not there or cannot be read; its label stays in out/labels.sqlite"
    for command in (TABLE, given):
        assert line in printed(capsys, *command)
    Path("pile/again.png").write_bytes(content)
    assert "Note: 1 correction is used.\n" in printed(capsys, *given)


def test_labels_that_were_changed_are_neither_used_nor_overwritten(capsys, given):
    printed(capsys, *given)
    before = rows()["pile/more/circle-0.png"]
    changed = "cross" if before["label"] == "stranger" else "stranger"
    for label in (before["runner_up"], "", "sparrow", changed):
        edit({"pile/more/circle-0.png": {"label": label}})
        content = Path("out/predictions.csv").read_bytes()
        for command in (TABLE, given):
            line = refusal(capsys, *command)
            assert "the label of pile/more/circle-0.png was changed; leave it" in line
        assert Path("out/predictions.csv").read_bytes() == content
        edit({"pile/more/circle-0.png": before})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("path,label,label\na.png,cat,\n", "table.csv has two columns label: remove or rename"),
        ("path,label\npile/dots-0.png,\n", "no row of table.csv has a class: write some into"),
        ("path,label\na.png,stranger\nb.png,\n", "no row of table.csv has a class"),
        (
            "path,label,decision\na.png,cat,accept\n",
            "so its labels may be guesses: delete it, and run",
        ),
        ("path,label\na.png,-1\n", "a class is called -1, which elsewhere means unlabeled"),
        (
            "path:label\n",
            "has no column path and no column label: its first line must be path,label",
        ),
        (b"path,label\n\xfc,\xfc", "it must be a CSV in UTF-8"),
        ('path,label\n"a', "it must be a CSV in UTF-8"),
    ],
)
def test_what_is_wrong_with_a_table_is_one_line(capsys, given, text, message):
    Path("table.csv").write_bytes(text if isinstance(text, bytes) else text.encode())
    line = refusal(capsys, "classify", "--labeled", "table.csv", "--out", "o", *DRAWN)
    assert message in line
    assert not Path("o").exists()


def test_predictions_read_from_another_folder_say_where_their_paths_begin(
    capsys, given, tmp_path, monkeypatch
):
    printed(capsys, *given)
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    table = ["classify", "--labeled", "../out/predictions.csv", "--out", "new", *DRAWN]
    assert "are relative to the folder where it was made" in refusal(capsys, *table)


@pytest.mark.parametrize("how", ["move", "copy", "link"])
def test_corrections_sort_again_and_what_the_user_moved_stays(capsys, given, how):
    before = {p: p.read_bytes() for p in Path("pile").rglob("*.png")}
    printed(capsys, *given, "--apply", how)
    changes = {"pile/more/circle-0.png": "cross", "pile/dots-0.png": "stranger"}
    edit({name: {"correct": label} for name, label in changes.items()})
    again = [*TABLE, "--unlabeled", "pile"]
    assert "out/sorted is unchanged: pass --apply to sort it again." in printed(capsys, *again)
    assert "circle/circle-0.png" in sorted_files()
    save(draw("cross", 200), Path("pile/late/cross-9.png"))
    said = printed(capsys, *given, "--apply", how)
    assert "again to out/sorted: 25 files in their folders; `semishot undo out` undoes it" in said
    assert {"cross/circle-0.png", "stranger/dots-0.png", "cross/cross-9.png"} <= sorted_files()
    Path("out/sorted/circle/circle-1.png").rename("out/sorted/cross/circle-1.png")
    said = printed(capsys, *given, "--apply", how)
    assert "Not sorted: out/sorted/cross/circle-1.png: you moved it there, left where it" in said
    assert "Note: 2 corrections are used." in said
    assert len(sorted_files()) == 25
    Path("out/sorted/cross/circle-1.png").rename("out/sorted/circle/circle-1.png")
    printed(capsys, "undo", "out")
    Path("pile/late/cross-9.png").unlink()
    assert {p: p.read_bytes() for p in Path("pile").rglob("*.png")} == before
    assert not Path("out/sorted").exists()


def test_files_that_the_user_took_away_are_no_obstacle(capsys, given):
    printed(capsys, *given, "--apply", "move")
    Path("out/sorted/circle/circle-0.png").unlink()
    Path("out/sorted/cross/cross-0.png").write_bytes(Path("labeled/cross/0.png").read_bytes())
    said = printed(capsys, *given, "--apply", "move")
    assert "Not sorted: out/sorted/circle/circle-0.png: gone or changed since it was" in said
    assert "Not sorted: out/sorted/cross/cross-0.png: gone or changed since it was" in said
    shutil.rmtree("pile")
    printed(capsys, *given, "--apply", "move")


def test_features_are_corrected_by_the_names_of_their_rows(capsys):
    rng = np.random.default_rng(0)
    centers, labels = rng.normal(size=(3, 40)), np.repeat([0, 1, 2], 3)
    np.save("known.npy", centers[labels] + 0.1 * rng.normal(size=(9, 40)))
    np.save("pile.npy", centers[[0, 1, 2, 0]] + 0.1 * rng.normal(size=(4, 40)))
    np.save("labels.npy", [*labels[:8], -2])
    given = ["classify", "--labeled", "known.npy", "--labels", "labels.npy"]
    given += ["--unlabeled", "pile.npy", "--out", "out"]
    assert "8 labeled rows of 3 classes, 1 named stranger, 4 rows" in printed(capsys, *given)
    edit({"pile.npy:1": {"correct": "2"}})
    for _ in range(2):
        said = printed(capsys, *given)
        assert "9 labeled rows of 3 classes, 1 named stranger, 3 rows" in said
    assert rows()["pile.npy:1"]["decision"] == "corrected"


# Strangers that the user has named, copies, and labels that cannot be right


def test_a_folder_of_strangers_is_not_a_class(capsys, given):
    for number in (0, 1):
        save(draw("dots", number), Path(f"labeled/Stranger/{number}.png"))
    said = printed(capsys, *given)
    assert "9 labeled images of 3 classes, 2 named strangers, 24 images in the pile" in said
    assert "2 of the pile are copies of labeled images, and take their labels" in said
    for number in (0, 1):
        row = rows()[f"pile/dots-{number}.png"]
        assert (row["decision"], row["stranger_probability"]) == ("stranger", "1.0")
        assert row["path"] not in result()["next_to_label"]
    assert set(result()["accepted"]) == {"circle", "cross", "stripes"}


def test_what_is_labeled_is_not_suggested_and_of_copies_one(capsys, tmp_path):
    """Every image lies in the pile three times, some of them in a class too; nothing is certain."""
    labeled, pile = folders(tmp_path, shots=1, pile=2, strangers=8)
    for path in list(pile.rglob("*.png")):
        for number in (1, 2):
            shutil.copy(path, path.with_stem(f"{path.stem}-copy{number}"))
    for kind in ("circle", "cross"):
        shutil.copy(pile / f"more/{kind}-0.png", labeled / kind / "known.png")
    classified(capsys, labeled, pile)
    asked = [Path(path) for path in result()["next_to_label"]]
    assert asked
    contents = [path.read_bytes() for path in asked]
    assert len(set(contents)) == len(contents)
    assert not set(contents) & {path.read_bytes() for path in labeled.rglob("*.png")}


def test_a_label_that_the_others_contradict_is_named(capsys, tmp_path):
    labeled, pile = folders(tmp_path, shots=6, pile=2, strangers=0)
    (labeled / "circle/5.png").rename(labeled / "stripes/wrong.png")
    said = classified(capsys, labeled, pile)
    assert f"Note: {labeled}/stripes/wrong.png looks like circle, not stripes." in said


def test_an_encoder_near_chance_is_warned_about(capsys):
    """Features of noise, in three draws; and features that tell the classes apart."""
    warned, labels = [], np.arange(24) % 4
    for seed in range(4):
        rng = np.random.default_rng(seed)
        centers = (seed == 3) * 2 * rng.normal(size=(4, 40))
        np.save("known.npy", centers[labels] + rng.normal(size=(24, 40)))
        np.save("pile.npy", centers[np.arange(50) % 4] + rng.normal(size=(50, 40)))
        np.save("labels.npy", labels)
        given = ["classify", "--labeled", "known.npy", "--labels", "labels.npy"]
        said = printed(capsys, *given, "--unlabeled", "pile.npy", "--out", f"out{seed}")
        warned.append("are predicted right, hardly better than by chance: these features" in said)
    assert sum(warned[:3]) >= 2
    assert not warned[3]


def test_a_pile_of_which_everything_is_labeled_is_sorted(capsys, given):
    """By copies in the folders of classes, or by corrections."""
    for path in sorted(Path("pile").rglob("*.png")):
        kind = path.stem.split("-")[0]
        folder = Path("labeled", "stranger" if kind == "dots" else kind)
        folder.mkdir(exist_ok=True)
        shutil.copy(path, folder / f"copy of {path.name}")
    said = printed(capsys, *given, "--apply", "copy")
    assert "24 of the pile are copies of labeled images, and take their labels" in said
    assert result()["next_to_label"] == []
    expected = {
        f"{p.stem.split('-')[0].replace('dots', 'stranger')}/{p.name}"
        for p in Path("pile").rglob("*.png")
    }
    assert sorted_files() == expected
    edit({n: {"correct": "cross"} for n in rows() if n.startswith("pile")})
    said = printed(capsys, *TABLE, "--unlabeled", "pile", "--apply", "copy")
    assert {name.split("/")[0] for name in sorted_files()} == {"cross"}


# Names with anything in them


def test_a_file_that_has_an_escape_as_its_name_is_that_file(tmp_path):
    cell = "dots-\\udce9.png"
    assert written_path(cell, tmp_path) == ODD
    (tmp_path / cell).touch()
    assert written_path(cell, tmp_path) == cell


@pytest.mark.parametrize("how", ["copy", "move"])
def test_odd_names_are_sorted_corrected_and_read_back(capsys, given, how):
    try:
        Path("pile/dots-0.png").rename(Path("pile", ODD))
    except OSError:
        pytest.skip("this file system has names in UTF-8 only")
    Path("pile/more/circle-0.png").rename(Path("pile/more", BREAK))
    printed(capsys, *given, "--apply", how)
    lines = Path("out/predictions.csv").read_text().splitlines()
    assert not any(line.startswith("=") and '"' not in line for line in lines)
    edit({"pile/dots-\\udce9.png": {"correct": "Stripes"}})
    said = printed(capsys, *TABLE, "--unlabeled", "pile", "--apply", how)
    assert "Note: 1 correction is used." in said
    assert "classes that only corrections name" not in said
    assert Path("out/sorted/stripes", ODD).is_file()
    assert Path("out/sorted/circle", BREAK).is_file()
    printed(capsys, "undo", "out")
    said = printed(capsys, *TABLE)
    assert "10 labeled images of 3 classes, 23 images in the pile" in said
    assert Path("out/skipped.csv").read_text().splitlines()[1:] == []
