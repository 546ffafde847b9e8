"""A pile read in the background: files that come, go, change or cannot be read."""

import time

from semishot.label import LabelRequest
from support.labeling import serving
from support.own_images import draw, save


def test_files_that_vanish_or_change_are_shown_as_such(asked_own):
    asked, pile = asked_own, asked_own.pile
    for path in pile.glob("[!d]*.png"):
        path.unlink()
    with serving(asked, 12) as (running, client):
        names = client.names()
        (pile / "dots-0.png").unlink()
        save(draw("cross", 77), pile / "dots-1.png")
        save(draw("cross", 78), pile / "new.png")
        running.session.pile.look_again.set()
        state = client.until(lambda state: state["rows"] == 14)
        files = dict(zip(state["image"], state["copies"], strict=True))
        gone = {image for image, count in files.items() if count == 0}
        assert gone == {names["dots-0.png"], names["dots-1.png"]}
        client.say(kind="new", name="dots", images=[names["dots-0.png"]])
    with serving(asked) as (_, client):
        state = client.until(lambda state: state["rows"] == 13)  # of dots-1 only the new content
        files = dict(zip(state["image"], state["copies"], strict=True))
        assert files[names["dots-0.png"]] == 0


def test_a_file_that_cannot_be_read_does_not_stop_the_others(drawings, cache, tmp_path):
    pile = tmp_path / "pile"
    pile.mkdir()
    (pile / "good.png").write_bytes((drawings[1] / "dots-1.png").read_bytes())
    (pile / "bad.png").write_bytes(b"not an image")
    asked = LabelRequest(pile, out=tmp_path / "out", encoder="omniglot", cache=cache, device="cpu")
    with serving(asked, 1) as (running, client):
        while running.session.pile.progress.phase != "ready":
            time.sleep(0.01)
        assert client.state()["rows"] == 1
