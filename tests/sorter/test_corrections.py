"""Corrections: predictions.csv as a table, files moved by hand, and sorting again without `undo`."""

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from semishot.sorter import fitted_pile
from semishot.sorter.embedding import Rows
from semishot.sorter.fitted_pile import fit_pile
from semishot.sorter.listing import Item
from semishot.sorter.moving import move_files
from semishot.sorter.moving.journal import read_journal
from support.commands import classified, printed, refusal
from support.own_images import DRAWN, draw, folders, save


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def rows(path="out/predictions.csv") -> dict[str, dict[str, str]]:
    """By path."""
    with Path(path).open(encoding="utf-8-sig", newline="") as file:
        return {row["path"]: row for row in csv.DictReader(file)}


def edit(changes: dict[str, dict[str, str]], path="out/predictions.csv", delimiter=",") -> None:
    """As a spreadsheet would save it: with a byte order mark and its own line ends."""
    held = rows(path)
    for name, cells in changes.items():
        held[name].update(cells)
    with Path(path).open("w", encoding="utf-8-sig", newline="") as file:
        writer = csv.DictWriter(file, list(next(iter(held.values()))), delimiter=delimiter)
        writer.writeheader()
        writer.writerows(held.values())


def result() -> dict:
    return json.loads(Path("out/result.json").read_text())


def sorted_files() -> set[str]:
    return {p.relative_to("out/sorted").as_posix() for p in Path("out/sorted").rglob("*.png")}


@pytest.fixture
def given(tmp_path) -> list[str]:
    folders(tmp_path)
    return ["classify", "--labeled", "labeled", "--unlabeled", "pile", "--out", "out", *DRAWN]


def test_predictions_are_a_table_after_edits(capsys, given):
    printed(capsys, *given)
    correct = {
        "pile/more/circle-0.png": {"correct": " Cross "},
        "pile/dots-0.png": {"correct": "STRANGER"},
        "pile/dots-1.png": {"correct": "dots"},
        "labeled/cross/0.png": {"correct": "circle"},
    }
    edit(correct, delimiter=";")
    said = printed(capsys, "classify", "--labeled", "out/predictions.csv", "--out", "out", *DRAWN)
    assert "10 labeled images of 4 classes" not in said
    assert "11 labeled images of 4 classes, 1 named stranger, 21 images in the pile" in said
    assert "Note: 4 corrections are used." in said
    assert "Note: classes that only corrections name: dots." in said
    assert result()["labeled"] == {"circle": 4, "cross": 3, "dots": 1, "stripes": 3}
    found = rows()
    assert len(found) == 33
    for path, label, decision in [
        ("pile/more/circle-0.png", "cross", "corrected"),
        ("pile/dots-0.png", "stranger", "corrected"),
        ("labeled/cross/0.png", "circle", "labeled"),
    ]:
        row = found[path]
        assert (row["label"], row["decision"], row["correct"]) == (label, decision, label)
    edit({"pile/more/circle-0.png": {"correct": ""}})
    printed(capsys, "classify", "--labeled", "out/predictions.csv", "--out", "out", *DRAWN)
    assert rows()["pile/more/circle-0.png"]["decision"] == "accept"
    assert result()["labeled"] == {"circle": 4, "cross": 2, "dots": 1, "stripes": 3}


def test_corrections_in_out_are_used_by_the_same_command_and_kept(capsys, given):
    printed(capsys, *given)
    edit(
        {"pile/more/circle-0.png": {"correct": "cross"}, "pile/dots-0.png": {"correct": "stranger"}}
    )
    for _ in range(2):
        said = printed(capsys, *given)
        assert "10 labeled images of 3 classes, 1 named stranger, 22 images in the pile" in said
        assert rows()["pile/more/circle-0.png"]["correct"] == "cross"
        assert not {"pile/more/circle-0.png", "pile/dots-0.png"} & set(result()["next_to_label"])


def test_a_label_that_was_changed_is_not_passed_over(capsys, given):
    printed(capsys, *given)
    before = rows()["pile/more/circle-0.png"]
    for label in (before["runner_up"], "", "sparrow"):
        edit({"pile/more/circle-0.png": {"label": label}})
        line = refusal(capsys, "classify", "--labeled", "out/predictions.csv", "--out", "o", *DRAWN)
        assert "the label of pile/more/circle-0.png was changed; leave it" in line
        assert "column correct" in line
        edit({"pile/more/circle-0.png": before})
    Path("old.csv").write_text("path,label,decision\na.png,cat,accept\n")
    line = refusal(capsys, "classify", "--labeled", "old.csv", "--out", "o", *DRAWN)
    assert "old.csv holds predictions without the column correct: its labels are guesses" in line
    Path("half.csv").write_text("path,label,decision,correct\na.png,cat,accept,\n")
    line = refusal(capsys, "classify", "--labeled", "half.csv", "--out", "o", *DRAWN)
    assert "half.csv has no column runner_up: run classify again" in line
    Path("odd.csv").write_text("path,label,runner_up,decision,correct\n,cat,,labeled,\n")
    line = refusal(capsys, "classify", "--labeled", "odd.csv", "--out", "o", *DRAWN)
    assert "no row of odd.csv has a class: write some into its column label" in line
    assert not Path("o").exists()


def test_labels_that_were_changed_are_not_overwritten(capsys, given):
    """Corrections in the wrong column were lost without a word."""
    printed(capsys, *given)
    names = ["pile/more/circle-0.png", "pile/more/circle-1.png"]
    edit({names[0]: {"label": rows()[names[0]]["runner_up"]}, names[1]: {"label": "sparrow"}})
    held = Path("out/predictions.csv").read_bytes()
    line = refusal(capsys, *given, "--apply", "move")
    assert "the label of pile/more/circle-0.png, and of 1 more, was changed; leave it, and" in line
    assert Path("out/predictions.csv").read_bytes() == held
    assert not Path("out/sorted").exists()
    edit({name: {"correct": "cross"} for name in names})  # the labels need not be as they were
    assert "Note: 2 corrections are used." in printed(capsys, *given)
    few = {name: row for name, row in rows().items() if row["decision"] != "labeled"}
    del few["pile/dots-0.png"]  # nor need all rows or columns be there
    text = "".join(f"{name},{row['label']},{row['decision']},\n" for name, row in few.items())
    Path("out/predictions.csv").write_text("path,label,decision,correct\n" + text)
    printed(capsys, *given)


def test_predictions_that_are_no_table_any_more_are_one_line(capsys, given):
    printed(capsys, *given)
    Path("out/predictions.csv").write_bytes("path,correct\nü,ü".encode("latin-1"))
    assert "cannot read out/predictions.csv" in refusal(capsys, *given)


@pytest.mark.parametrize("how", ["move", "copy", "link"])
def test_corrections_sort_again_without_undo(capsys, given, how):
    before = {p: p.read_bytes() for p in Path("pile").rglob("*.png")}
    printed(capsys, *given, "--apply", how)
    assert "circle/circle-0.png" in sorted_files()
    edit(
        {"pile/more/circle-0.png": {"correct": "cross"}, "pile/dots-0.png": {"correct": "stranger"}}
    )
    save(draw("cross", 200), Path("pile/late/cross-9.png"))
    looked = printed(capsys, *given)
    assert "out/sorted is unchanged: pass --apply to sort it again." in looked
    assert "circle/circle-0.png" in sorted_files()
    said = printed(capsys, *given, "--apply", how)
    assert "again to out/sorted: 25 files in their folders; `semishot undo out` undoes it" in said
    assert {"cross/circle-0.png", "stranger/dots-0.png", "cross/cross-9.png"} <= sorted_files()
    assert "circle/circle-0.png" not in sorted_files()
    assert len(sorted_files()) == 25
    assert len(rows()) == 25 + 9
    printed(capsys, "undo", "out")
    Path("pile/late/cross-9.png").unlink()
    assert {p: p.read_bytes() for p in Path("pile").rglob("*.png")} == before
    assert not Path("out/sorted").exists()


@pytest.mark.parametrize("how", ["move", "copy", "link"])
def test_files_moved_by_hand_are_corrections(capsys, given, how):
    printed(capsys, *given, "--apply", how)
    here = Path("out/sorted")
    (here / "circle/circle-0.png").rename(here / "cross/circle-0.png")
    (here / "circle/circle-1.png").rename(here / "stranger/circle-1.png")
    (here / "ring").mkdir()
    (here / "circle/circle-2.png").rename(here / "ring/circle-2.png")
    for _ in range(2):  # the second time they lie where the journal says
        said = printed(capsys, *given, "--apply", how)
        assert "Note: 3 corrections are used." in said
        assert "Note: classes that only corrections name: ring." in said
        found = {Path(row["path"]).name: row["correct"] for row in rows().values()}
        assert found["circle-0.png"] == "cross"
        assert found["circle-1.png"] == "stranger"
        assert found["circle-2.png"] == "ring"
        assert {
            "cross/circle-0.png",
            "stranger/circle-1.png",
            "ring/circle-2.png",
        } <= sorted_files()
        assert len(sorted_files()) == 24
    assert printed(capsys, "undo", "out").startswith("24 ")
    assert len(list(Path("pile").rglob("*.png"))) == 24


def test_files_that_the_user_took_away_are_no_obstacle(capsys, given):
    printed(capsys, *given, "--apply", "move")
    Path("out/sorted/circle/circle-0.png").unlink()
    shutil.move("out/sorted/circle/circle-1.png", "labeled/cross/mine.png")
    said = printed(capsys, *given, "--apply", "move")
    assert "Not sorted: 2 files sorted before are gone, or have changed" in said
    assert "10 labeled images of 3 classes, 22 images in the pile" in said
    shutil.rmtree("pile")
    printed(capsys, *given, "--apply", "move")
    assert len(read_journal(Path("out")).steps) == 24


def test_sorted_again_without_changes_nothing_changes(capsys, given):
    printed(capsys, *given, "--apply", "move")
    names = ("predictions.csv", "report.html", "undo.json")
    before = {name: Path("out", name).read_text() for name in names}
    inodes = {p: p.stat().st_ino for p in Path("out/sorted").rglob("*.png")}
    printed(capsys, *given, "--apply", "move")
    assert {name: Path("out", name).read_text() for name in names} == before
    assert {p: p.stat().st_ino for p in Path("out/sorted").rglob("*.png")} == inodes


def test_features_are_corrected_by_the_names_of_their_rows(capsys):
    rng = np.random.default_rng(0)
    centers, labels = rng.normal(size=(3, 40)), np.repeat([0, 1, 2], 3)
    np.save("known.npy", centers[labels] + 0.1 * rng.normal(size=(9, 40)))
    np.save("pile.npy", centers[[0, 1, 2, 0]] + 0.1 * rng.normal(size=(4, 40)))
    np.save("labels.npy", [*labels[:8], -2])
    given = ["classify", "--labeled", "known.npy", "--labels", "labels.npy"]
    given += ["--unlabeled", "pile.npy", "--out", "out"]
    assert (
        "8 labeled rows of features of 3 classes, 1 named stranger, 4 rows of features"
        in printed(capsys, *given)
    )
    assert rows()["known.npy:8"]["label"] == "stranger"
    edit({"pile.npy:1": {"correct": "2"}})
    assert "9 labeled rows of features of 3 classes, 1 named stranger, 3 rows" in printed(
        capsys, *given
    )
    assert rows()["pile.npy:1"]["decision"] == "corrected"


# Strangers that the user has named, copies, and labels that cannot be right


def test_a_folder_of_strangers_is_not_a_class(capsys, given):
    for number in (0, 1):
        save(draw("dots", number), Path(f"labeled/Stranger/{number}.png"))
    said = printed(capsys, *given)
    assert "9 labeled images of 3 classes, 2 named strangers, 24 images in the pile" in said
    assert "Note: labeled/Stranger: 2 images of none of the classes." in said
    assert "2 of the pile are copies of labeled images, and take their labels" in said
    for number in (0, 1):
        row = rows()[f"pile/dots-{number}.png"]
        assert (row["decision"], row["stranger_probability"]) == ("stranger", "1.0")
        assert row["path"] not in result()["next_to_label"]
    assert set(result()["accepted"]) == {"circle", "cross", "stripes"}


def test_strangers_in_a_table(capsys, given):
    lines = ["path,label", *(f"labeled/{k}/0.png,{k}" for k in ("circle", "cross"))]
    lines += ["pile/dots-0.png,stranger", "pile/dots-1.png,", "pile/more/cross-1.png,"]
    Path("table.csv").write_text("\n".join(lines))
    said = printed(capsys, "classify", "--labeled", "table.csv", "--out", "out", *DRAWN)
    assert "2 labeled images of 2 classes, 1 named stranger, 2 images in the pile" in said
    assert "table.csv: 1 image of none of the classes (stranger)" in said
    Path("table.csv").write_text("path,label\npile/dots-0.png,stranger\npile/dots-1.png,\n")
    line = refusal(capsys, "classify", "--labeled", "table.csv", "--out", "o", *DRAWN)
    assert "no row of table.csv has a class" in line


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("path,label\n", "table.csv has no rows below its first line: each names an image and"),
        ("path,label,label\na.png,cat,\n", "table.csv has two columns label: remove or rename"),
        ("path;path;label\na.png;b.png;cat\n", "table.csv has two columns path: remove or rename"),
        ("path,label\npile/dots-0.png,\n", "no row of table.csv has a class: write some into"),
    ],
)
def test_what_is_wrong_with_a_table_is_said_of_the_table(capsys, given, text, message):
    """And nothing about folders of classes."""
    Path("table.csv").write_text(text)
    line = refusal(capsys, "classify", "--labeled", "table.csv", "--out", "o", *DRAWN)
    assert message in line
    assert "folder" not in line


@pytest.mark.parametrize(("name", "meaning"), [("-1", "unlabeled"), ("-2", "strangers")])
def test_a_class_named_like_a_mark_is_refused(capsys, given, name, meaning):
    Path("labeled/cross").rename(f"labeled/{name}")
    assert f"a class is called {name}, which elsewhere means {meaning}" in refusal(capsys, *given)


def test_what_is_labeled_is_not_suggested_and_of_copies_one(capsys, tmp_path):
    """Every image lies in the pile three times, some of them in a class too; nothing is certain."""
    labeled, pile = folders(tmp_path, shots=2, pile=2, strangers=8)
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
    folders(tmp_path, shots=5)
    Path("labeled/circle/0.png").rename("labeled/cross/wrong.png")
    given = ["classify", "--labeled", "labeled", "--unlabeled", "pile", "--out", "out", *DRAWN]
    said = printed(capsys, *given)
    assert "Note: labeled/cross/wrong.png looks like circle, not cross." in said


def test_an_encoder_near_chance_is_warned_about(capsys):
    """Features of noise, in five draws; and features that tell the classes apart."""
    warned, labels = [], np.arange(24) % 4
    for seed in range(6):
        rng = np.random.default_rng(seed)
        centers = (seed == 5) * 2 * rng.normal(size=(4, 40))
        np.save("known.npy", centers[labels] + rng.normal(size=(24, 40)))
        np.save("pile.npy", centers[np.arange(50) % 4] + rng.normal(size=(50, 40)))
        np.save("labels.npy", labels)
        given = ["classify", "--labeled", "known.npy", "--labels", "labels.npy"]
        said = printed(capsys, *given, "--unlabeled", "pile.npy", "--out", f"out{seed}")
        warned.append("are predicted right, hardly better than by chance: these features" in said)
    assert sum(warned[:5]) >= 4
    assert not warned[5]


def test_many_doubts_and_conflicts_are_counted(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(fitted_pile, "NAMED", 1)
    labeled, _ = folders(tmp_path, shots=6, pile=2, strangers=0)
    for number in range(2):
        shutil.copy(labeled / f"circle/{number}.png", labeled / f"cross/same{number}.png")
    given = ["classify", "--labeled", "labeled", "--unlabeled", "pile", "--out", "out", *DRAWN]
    said = printed(capsys, *given)
    assert "Note: labeled/circle/0.png and labeled/cross/same0.png are one image in two" in said
    assert "Note: 1 more images lie in two classes." in said


def test_a_copy_of_a_labeled_image_has_the_numbers_of_that_image():
    """Not those of another one: copies of named strangers too."""
    rng = np.random.default_rng(0)
    centers = 3 * rng.normal(size=(3, 40))
    owner = np.array([0, 0, 1, 1, 2, 0, 0, 0, 1, 1, 1, 2, 2, 0, 2])
    features = (centers[owner] + rng.normal(size=(15, 40))).astype(np.float32)
    features[13], features[14] = features[0], features[4]  # copies of a member, and of a stranger
    digests = [bytes([i]) for i in range(13)] + [bytes([0]), bytes([4])]
    names = ["a", "a", "b", "b", "stranger"]
    items = [Item(str(i), names[i] if i < 5 else None) for i in range(15)]
    fitted = fit_pile(Rows(features.copy(), items, digests), None, 0.05)
    member, stranger = fitted.predictions[-2:]
    scores = fitted.answers.scores
    assert (member.label, member.stranger) == ("a", False)
    assert member.distractor_score == pytest.approx(scores[0])
    assert (stranger.stranger, stranger.stranger_probability) == (True, 1.0)
    assert stranger.distractor_score == pytest.approx(scores[4])


def test_corrections_of_a_pile_that_was_moved_stay_and_count_again_when_it_is_back(capsys, given):
    printed(capsys, *given)
    edit({"pile/dots-0.png": {"correct": "dots"}, "pile/dots-1.png": {"correct": "dots"}})
    Path("pile").rename("elsewhere")
    moved = ["elsewhere" if word == "pile" else word for word in given]
    for _ in range(2):
        said = printed(capsys, *moved)
        assert "corrections are used" not in said
        assert (
            "Note: 2 corrections are of files that are not there or cannot be read, such as pile/dots-0.png: "
            "they stay in predictions.csv and count when the files are back.\n" in said
        )
        found = rows()
        assert len(found) == 33 + 2
        assert {found[f"pile/dots-{n}.png"]["correct"] for n in range(2)} == {"dots"}
    assert result()["labeled"] == {"circle": 3, "cross": 3, "stripes": 3}
    Path("elsewhere").rename("pile")
    said = printed(capsys, *given)
    assert "Note: 2 corrections are used." in said
    assert "not there" not in said
    assert len(rows()) == 33


def test_a_correction_of_an_image_that_cannot_be_read_stays(capsys, given):
    printed(capsys, *given)
    edit({"pile/dots-0.png": {"correct": "stranger"}})
    held = Path("pile/dots-0.png").read_bytes()
    Path("pile/dots-0.png").write_bytes(b"")
    again = ["classify", "--labeled", "out/predictions.csv", "--out", "out", *DRAWN]
    for words in (given, again):
        said = printed(capsys, *words)
        assert (
            "Note: 1 correction is of a file that is not there or cannot be read: pile/dots-0.png"
            in said
        )
        assert "corrections are used" not in said
        assert rows()["pile/dots-0.png"]["correct"] == "stranger"
    Path("pile/dots-0.png").write_bytes(held)
    assert "Note: 1 correction is used.\n" in printed(capsys, *given)


def test_predictions_read_from_another_folder_say_where_their_paths_begin(
    capsys, given, tmp_path, monkeypatch
):
    printed(capsys, *given)
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    table = ["classify", "--labeled", "../out/predictions.csv", "--out", "new", *DRAWN]
    assert refusal(capsys, *table) == (
        "semishot: no labeled image can be read; new/skipped.csv says why (the paths in "
        "../out/predictions.csv are relative to the folder where it was made)\n"
    )


def test_a_pile_that_was_moved_after_it_was_copied_is_not_copied_twice(capsys, given):
    printed(capsys, *given, "--apply", "copy")
    here = Path("out/sorted")
    (here / "circle/circle-0.png").rename(here / "cross/circle-0.png")
    edit({"pile/dots-0.png": {"correct": "stripes"}})
    printed(capsys, *given, "--apply", "copy")  # the first correction is in predictions.csv now
    (here / "circle/circle-1.png").rename(here / "cross/circle-1.png")
    Path("pile").rename("elsewhere")
    save(draw("cross", 300), Path("elsewhere/new/circle-2.png"))  # the name of another file
    moved = ["elsewhere" if word == "pile" else word for word in given]
    said = printed(capsys, *moved, "--apply", "copy")
    assert "Note: 3 corrections are used." in said
    assert "not there" not in said
    assert "again to out/sorted: 25 files in their folders; `semishot undo out` undoes it" in said
    assert len(sorted_files()) == 25
    assert {"cross/circle-0.png", "cross/circle-1.png", "stripes/dots-0.png"} <= sorted_files()
    assert not any(row["path"].startswith("pile/") for row in rows().values())
    assert printed(capsys, "undo", "out").startswith("25 copies removed")
    assert len(list(Path("elsewhere").rglob("*.png"))) == 25


def test_copies_whose_originals_are_gone_stay(capsys, given):
    printed(capsys, *given, "--apply", "copy")
    Path("pile/dots-0.png").unlink()
    Path("pile/other").mkdir()
    save(draw("cross", 300), Path("pile/other/dots-0.png"))
    printed(capsys, *given, "--apply", "copy")
    assert len(sorted_files()) == 25


def test_a_pile_of_which_everything_is_labeled_by_copies_is_sorted(capsys, given):
    """Who has copied every image of the pile into the folder of its class is done."""
    for path in sorted(Path("pile").rglob("*.png")):
        kind = path.stem.split("-")[0]
        folder = Path("labeled", "stranger" if kind == "dots" else kind)
        folder.mkdir(exist_ok=True)
        shutil.copy(path, folder / f"copy of {path.name}")
    said = printed(capsys, *given, "--apply", "copy")
    assert "24 of the pile are copies of labeled images, and take their labels" in said
    assert result()["next_to_label"] == []
    assert Path("out/report.html").exists()
    assert sorted_files() == {
        f"{Path(row['path']).stem.split('-')[0].replace('dots', 'stranger')}/{Path(row['path']).name}"
        for name, row in rows().items()
        if name.startswith("pile")
    }


def test_a_pile_that_is_corrected_as_a_whole_is_sorted(capsys, given):
    printed(capsys, *given)
    kinds = {name: Path(name).stem.split("-")[0] for name in rows() if name.startswith("pile")}
    edit({name: {"correct": kind.replace("dots", "stranger")} for name, kind in kinds.items()})
    table = ["classify", "--labeled", "out/predictions.csv", "--out", "out", *DRAWN]
    for words in (given, table):
        said = printed(capsys, *words, "--apply", "copy")
        assert "Note: 24 corrections are used." in said
        assert result()["pile"] == 0
        assert len(rows()) == 33
        assert sorted_files() == {
            f"{kind.replace('dots', 'stranger')}/{Path(name).name}" for name, kind in kinds.items()
        }


def links() -> dict[str, str]:
    """Links of OUT/sorted, and the folder of the pile that each leads to."""
    here = Path("out/sorted")
    found = {path.relative_to(here).as_posix(): path for path in here.rglob("*.png")}
    return {name: path.readlink().relative_to(Path.cwd()).parts[0] for name, path in found.items()}


@pytest.fixture
def linked(capsys, given) -> list[str]:
    """A pile that was linked, corrected by hand, and moved; the command with its new place."""
    printed(capsys, *given, "--apply", "link")
    here = Path("out/sorted")
    (here / "circle/circle-0.png").rename(here / "cross/circle-0.png")
    (here / "stripes/stripes-0.png").unlink()
    Path("pile").rename("elsewhere")
    return ["elsewhere" if word == "pile" else word for word in given]


def test_a_pile_that_was_moved_after_it_was_linked_is_linked_where_it_is(capsys, linked):
    """The links to the old place stayed, leading nowhere, beside new ones with other names."""
    Path("elsewhere/dots-0.png").unlink()
    said = printed(capsys, *linked, "--apply", "link")
    assert "Note: 1 correction is used." in said
    assert "again to out/sorted: 23 files in their folders; `semishot undo out` undoes it" in said
    assert len(links()) == 24
    assert links().pop("cross/circle-0.png") == "elsewhere"
    assert [name for name, led in links().items() if led == "pile"] == ["stranger/dots-0.png"]
    before = links()
    printed(capsys, *linked, "--apply", "link")
    assert links() == before
    assert printed(capsys, "undo", "out").startswith("24 links removed")
    assert not Path("out/sorted").exists()


def test_links_of_a_moved_pile_stay_unless_it_is_sorted_again(capsys, linked):
    said = printed(capsys, *linked)
    assert "Note: 1 correction is used." in said
    assert "out/sorted is unchanged: pass --apply to sort it again" in said
    assert set(links().values()) == {"pile"}
    assert printed(capsys, "undo", "out").startswith("23 links removed")


def test_killed_while_links_of_a_moved_pile_are_made_anew_it_goes_on(capsys, linked, monkeypatch):
    def killed(*of):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(move_files, "write_journal", killed)  # the old links are removed by then
        with pytest.raises(SystemExit):
            printed(capsys, *linked, "--apply", "link")
    assert links() == {}
    said = printed(capsys, *linked, "--apply", "link")
    assert "Note: 1 correction is used." in said
    assert len(links()) == 24
    assert set(links().values()) == {"elsewhere"}
    assert links()["cross/circle-0.png"]
    assert printed(capsys, "undo", "out").startswith("24 links removed")


def test_what_takes_the_place_of_a_link_of_a_moved_pile_is_left_alone(capsys, linked, monkeypatch):
    place = Path("out/sorted/circle/circle-1.png")

    def meanwhile(sorting):
        place.unlink()
        place.write_bytes(b"of the user")
        return begin(sorting)

    begin = move_files.begin
    monkeypatch.setattr("semishot.sorter.classify.begin", meanwhile)
    with pytest.raises(SystemExit):
        printed(capsys, *linked, "--apply", "link")
    assert "circle-1.png: File exists" in capsys.readouterr().out
    assert place.read_bytes() == b"of the user"
