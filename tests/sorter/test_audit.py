"""The audit of a pile: what is claimed stays true whatever the user does on the way."""

import csv
import json
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest

from semishot.estimator.audit import most_wrong
from semishot.sorter.audit import audit_event, audit_result, judged, to_look_at
from semishot.sorter.label_events import (
    ConflictError,
    GiveAnswers,
    LabelState,
    NewClass,
    RemoveClass,
    RuleOut,
    Undo,
)
from semishot.sorter.labels import open_store
from support.commands import classified, printed, refusal
from support.own_images import folders


@pytest.fixture
def store(tmp_path):
    with closing(open_store(tmp_path)) as opened:
        opened.add(NewClass("crow", [1]))
        opened.add(NewClass("wren", [2]))
        yield opened


def answer(value, *images):
    return GiveAnswers([(value, list(images))])


def test_an_answer_says_whether_the_decision_was_right(store):
    store.add(audit_event({1: 1, 3: 1, 4: 2, 5: 0, 6: 0, 7: 1}))
    assert sorted(to_look_at(store.state)) == [3, 4, 5, 6, 7]  # 1 has a label
    for event in (answer(1, 3), answer(1, 4), RuleOut(0, [5])):
        store.add(event)
    assert judged(store.state) == {3: True, 4: False, 5: False, 6: None, 7: None}
    store.add(Undo())
    assert sorted(to_look_at(store.state)) == [5, 6, 7]


def test_the_audit_is_the_same_after_a_kill(store, tmp_path):
    store.add(audit_event(dict.fromkeys(range(3, 60), 1)))
    with closing(open_store(tmp_path)) as again:
        assert to_look_at(again.state) == to_look_at(store.state) != sorted(to_look_at(store.state))


def test_a_class_that_is_merged_or_deleted_ends_the_audit_and_an_empty_one_does_not(store):
    store.add(audit_event({3: 1}))
    store.add(NewClass("empty", []))
    store.add(RemoveClass(3))
    assert store.state.audit is not None
    store.add(RemoveClass(2, 1))
    assert store.state.audit is None
    assert audit_result(store.state, {3: 1}) is None
    with pytest.raises(ConflictError, match="every image has an answer"):
        store.add(audit_event({1: 1, 2: 1}))


def test_at_most_1_of_20_certificates_is_ever_false_whatever_is_corrected_and_decided_anew():
    """A user answers in order, corrects at random elsewhere, and the rule changes its mind."""
    rng = np.random.default_rng(5)
    state, images, failed, piles = LabelState({1: "crow", 2: "wren"}), range(3, 40), 0, 200
    for _ in range(piles):
        answer(-1, *images).apply(state)
        truth = {image: int(rng.integers(0, 3)) for image in images}
        now = {
            image: t if rng.random() < 0.8 else int(rng.integers(0, 3))
            for image, t in truth.items()
        }
        seed = int(rng.integers(1, 2**31))
        msgspec.structs.replace(audit_event(now), seed=seed).apply(state)
        false = False
        while (left := to_look_at(state)) and not false:
            asked = left[0] if rng.random() < 0.7 else int(rng.choice(left))
            answer(truth[asked], asked).apply(state)
            if rng.random() < 0.1:
                now[int(rng.choice(left))] = int(rng.integers(0, 3))
            result = audit_result(state, now)
            answers = state.answers
            right = sum(answers.get(image, now[image]) == truth[image] for image in images)
            false = right < result.right_at_least
        failed += false
    assert failed <= 0.05 * piles


def test_what_changed_counts_as_wrong_and_what_was_corrected_as_right(store):
    decisions = dict.fromkeys(range(3, 103), 1)
    store.add(audit_event(decisions))
    order = to_look_at(store.state)
    store.add(answer(1, *order[:29]))
    store.add(answer(2, order[29]))
    result = audit_result(store.state, decisions)
    left = most_wrong(100, 30, 1) - 1
    assert (result.looked_at, result.wrong, result.right_at_least) == (30, 1, 100 - left)
    changed = decisions | {order[40]: 2, order[41]: 0, order[0]: 2, 200: 1}  # order[0] is answered
    result = audit_result(store.state, changed)
    assert (result.pile, result.changed, result.right_at_least) == (101, 3, 101 - left - 3)
    assert "3 decisions changed" in result.line()


def test_classes_and_strangers_have_bounds_of_their_own_if_enough_were_looked_at(store):
    decisions = {image: 1 if image < 90 else 0 if image < 120 else 2 for image in range(3, 124)}
    store.add(msgspec.structs.replace(audit_event(decisions), seed=1))
    order = to_look_at(store.state)
    for image in order[:60]:
        store.add(answer(decisions[image], image))
    kinds = audit_result(store.state, decisions).kinds
    own = [image for image in order[:60] if decisions[image] == 0]
    assert [*kinds] == ["crow", "stranger"]
    assert kinds["stranger"].looked_at == len(own) >= 10
    assert kinds["stranger"].right_at_least == 30 - most_wrong(30, len(own), 0)


def test_beyond_the_sample_answers_count_but_are_no_sample(store):
    decisions = dict.fromkeys(range(3, 23), 1)
    store.add(audit_event(decisions))
    order = to_look_at(store.state)
    store.add(answer(1, *order[1:]))
    result = audit_result(store.state, decisions)
    assert (result.looked_at, result.right_at_least) == (0, 19)
    store.add(answer(2, order[0]))
    assert audit_result(store.state, decisions).right_at_least == 20


# The command


def asked() -> list[dict[str, str]]:
    with Path("out/audit.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def fill(answers: dict[str, str]) -> None:
    lines = [f"{row['path']},{row['label']},{answers.get(row['path'], '')}" for row in asked()]
    Path("out/audit.csv").write_text("\n".join(["path,label,correct", *lines]), encoding="utf-8")


def test_a_pile_is_audited_by_a_table(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    seeds = iter((6, 9))  # with which the image that is wrong is not the first one of --again
    fixed = SimpleNamespace(randbelow=lambda most: next(seeds))
    monkeypatch.setattr("semishot.sorter.audit.secrets", fixed)
    folders(tmp_path)
    classified(capsys, "labeled", "pile")
    assert "Nothing has been looked at yet" in printed(capsys, "audit", "out", "--images", 20)
    decided = {row["path"]: row["label"] for row in asked()}
    paths = list(decided)
    names = {path: Path(path).name.split("-")[0].replace("dots", "stranger") for path in paths}
    wrong = sum(decided[path] != names[path] for path in paths[:12])
    fill({p: "right" if decided[p] == names[p] else names[p] for p in paths[:12]})
    found = json.loads(printed(capsys, "audit", "out", "--images", 20, "--json"))
    least = 24 - (most_wrong(24, 12, wrong) - wrong)
    assert (found["looked_at"], found["wrong"], found["right_at_least"]) == (12, wrong, least)
    assert [row[0] for row in found["to_look_at"]] == paths[12:20]
    stored = json.loads(Path("out/result.json").read_text())
    assert (stored["audit"]["right_at_least"], stored["pile"]) == (least, 24)

    fill({paths[12]: "wrong"})
    said = printed(capsys, "audit", "out", "--images", 20)
    assert f"13 images looked at, {wrong + 1} wrong" in said
    fill({paths[13]: "crcle"})
    said = refusal(capsys, "audit", "out")
    assert "write right, wrong, stranger or the name of a class" in said
    said = printed(capsys, "audit", "out", "--again", "--images", 5)
    assert "Nothing has been looked at yet" in said
    assert len(asked()) == 5


def test_an_audit_needs_a_sorted_pile_of_images(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("out").mkdir()
    assert "out has no predictions.csv" in refusal(capsys, "audit", "out")
    np.save("x.npy", np.eye(4, dtype=np.float32))
    Path("y.csv").write_text("label\na\nb\n-1\n-1\n")
    printed(capsys, "classify", "--labeled", "x.npy", "--labels", "y.csv", "--out", "out")
    assert "made from features" in refusal(capsys, "audit", "out")
