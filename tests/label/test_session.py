"""A pile and answers -> what the page shows: guesses, questions, copies."""

from dataclasses import replace

import numpy as np
from PIL import Image

from semishot.label import LabelRequest
from support.labeling import label_some, serving
from support.own_images import MEMBERS, draw, save

KINDS = (*MEMBERS, "dots")


def guessed(state):
    """Image -> the name it is shown under."""
    cutoff, found = state["cutoff"], {}
    rows = zip(*(state[c] for c in ("image", "said", "guess", "sure", "stranger")), strict=True)
    for image, said, guess, sure, stranger in rows:
        out = stranger > sure if cutoff is None else stranger >= cutoff
        place = said if said != -1 else -2 if out else guess
        found[image] = "stranger" if place == -2 else state["classes"][place][1]
    return found


def test_without_labels_the_pile_is_shown_as_kinds(client):
    state = client.until(lambda state: state["kinds"])
    assert not state["judged"]
    assert state["asked"] == []
    assert set(state["guess"]) == {-1}
    names = {image: name.split("-")[0] for name, image in client.names().items()}
    kinds = [[names[image] for image in images[:8]] for images in state["kinds"]]
    assert {max(set(kind), key=kind.count) for kind in kinds} >= {"circle", "cross", "stripes"}
    first = state["kinds"][0]
    state = client.say(kind="new", name="first", images=first[:8])
    assert not any(set(first[:8]) & set(images) for images in state["kinds"])


def test_a_few_answers_sort_the_pile(client):
    names = label_some(client)
    client.say(kind="answer", set=[[0, [names["dots-0.png"], names["dots-1.png"]]]])
    state = client.state()
    shown = guessed(state)
    right = [shown[names[f"{kind}-{n}.png"]] == kind for kind in MEMBERS for n in range(3, 12)]
    out = [shown[names[f"dots-{n}.png"]] == "stranger" for n in range(2, 12)]
    assert np.mean(right) > 0.85
    assert np.mean(out) > 0.7
    assert state["asked"]
    said = {state["image"][row] for row, value in enumerate(state["said"]) if value != -1}
    assert not said & set(state["asked"])


def test_not_this_class_guesses_again_without_it(client):
    names = label_some(client)
    image = names["circle-5.png"]
    assert guessed(client.state())[image] == "circle"
    state = client.say(kind="not", **{"class": 1}, images=[image])
    assert guessed(state)[image] != "circle"
    for number in (2, 3):
        state = client.say(kind="not", **{"class": number}, images=[image])
    assert guessed(state)[image] == "stranger"


def test_the_cutoff_moves_how_many_are_put_out(client):
    label_some(client)
    few = client.say(kind="reject", value=0.001)
    many = client.say(kind="reject", value=0.5)
    count = [list(guessed(state).values()).count("stranger") for state in (few, many)]
    assert count[0] < count[1]
    members = sum(
        65535 - s for s, said in zip(many["stranger"], many["said"], strict=True) if said == -1
    )
    out = [
        s
        for s, said in zip(many["stranger"], many["said"], strict=True)
        if said == -1 and s >= many["cutoff"]
    ]
    assert sum(65535 - s for s in out) <= 0.5 * members  # so many are expected to be lost
    assert client.say(kind="reject", value=None)["cutoff"] is None


def test_a_wrong_label_is_offered_for_review_until_it_is_confirmed(client):
    names = label_some(client, each=6)
    wrong = names["circle-8.png"]
    state = client.say(kind="answer", set=[[2, [wrong]]])
    assert [wrong, 0] in state["doubtful"]
    state = client.say(kind="answer", set=[[2, [wrong]]])
    assert wrong not in [image for image, _ in state["doubtful"]]


def test_labels_of_a_folder_are_imported_once(asked, drawings):
    asked = replace(asked, labeled=drawings[0])
    for confirmed in (9, 8):
        with serving(asked) as (_, client):
            state = client.until(lambda state: state["rows"] == 57 and state["judged"])
            assert {name for _, name in state["classes"]} == set(MEMBERS)
            assert sum(value != -1 for value in state["said"]) == confirmed
            answers = zip(state["image"], state["said"], strict=True)
            client.say(kind="answer", set=[[-1, [next(i for i, a in answers if a != -1)]]])


def test_reopening_shows_the_same_state_without_reading_again(asked):
    with serving(asked, 48) as (_, client):
        label_some(client)
        before = client.state()
    with serving(asked) as (running, client):
        after = client.until(lambda state: state["rows"] == 48 and state["judged"])
        assert running.session.pile.progress.rate == 0.0
        order = [after["image"].index(image) for image in before["image"]]
        for column in ("said", "guess", "group"):
            assert [after[column][row] for row in order] == before[column]
        assert after["undo"] == before["undo"]


def test_copies_are_one_image_and_near_copies_are_answered_together(cache, tmp_path):
    pile = tmp_path / "pile"
    for kind in KINDS:
        for number in range(3):
            save(draw(kind, number), pile / f"{kind}-{number}.png")
    (pile / "copy.png").write_bytes((pile / "cross-0.png").read_bytes())
    with Image.open(pile / "circle-0.png") as image:
        image.save(pile / "again.jpg", quality=97)
    asked = LabelRequest(pile, out=tmp_path / "out", encoder="omniglot", cache=cache, device="cpu")
    with serving(asked) as (_, client):
        state = client.until(lambda state: state["rows"] == 13)
        names = client.names()
        copies = dict(zip(state["image"], state["copies"], strict=True))
        assert sorted(copies.values()) == [1] * 12 + [2]
        group = dict(zip(state["image"], state["group"], strict=True))
        near, first = names["again.jpg"], names["circle-0.png"]
        assert group[near] == group[first]
        state = client.say(kind="new", name="circle", images=[first])
        said = dict(zip(state["image"], state["said"], strict=True))
        assert (said[near], said[first]) == (0, 0)
        state = client.say(kind="apart", images=[near, first])
        group = dict(zip(state["image"], state["group"], strict=True))
        assert group[near] != group[first]
        state = client.say(kind="answer", set=[[-1, [near]]])
        said = dict(zip(state["image"], state["said"], strict=True))
        assert (said[near], said[first]) == (-1, 0)


def test_what_is_known_of_one_image(client):
    names = label_some(client)
    about = client.json(f"/image/{names['circle-7.png']}")
    assert about["files"] == ["more/circle-7.png"]
    assert about["shares"][0][0] == 1
    assert sum(share for _, share in about["shares"]) <= 1.001
    assert client.json("/find?text=CIRCLE-7")["images"] == [names["circle-7.png"]]
