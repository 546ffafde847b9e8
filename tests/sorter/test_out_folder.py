"""OUT: a user's files in it are neither replaced nor written through a link."""

import pytest

from semishot.errors import InputError
from semishot.sorter.out_folder import check_out
from support.commands import classified
from support.own_images import draw, folders, save


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("model/sub/a.txt", "model/sub is not part of a saved model, and would be deleted"),
        ("model/a.txt", "a.txt is not part of a saved model, and would be deleted"),
        ("model/encoder.json", "has no classifier.safetensors, and would be replaced"),
        ("model", "model is a link or not a folder, and would be replaced"),
    ],
)
def test_a_folder_of_the_users_is_not_replaced(tmp_path, name, message):
    mine = tmp_path / name
    mine.parent.mkdir(parents=True, exist_ok=True)
    mine.write_text("mine")
    with pytest.raises(InputError, match=message):
        check_out(tmp_path)
    assert mine.read_text() == "mine"


@pytest.mark.parametrize("name", ["model", ".features.npy", "pictures"])
def test_a_link_in_the_output_leads_nowhere(tmp_path, name):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match=f"{name} is "):
        check_out(tmp_path / "out")


def test_what_was_ours_or_is_empty_is_replaced(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    labeled, pile = folders(tmp_path, shots=1, pile=1, strangers=0)
    (model := tmp_path / "out/model").mkdir(parents=True)
    (tmp_path / "out/.features.npy").write_text("of a killed run")
    classified(capsys, labeled, pile)
    save(draw("cross", 9), pile / "cross-9.png")
    (model / ".DS_Store").write_text("of a file manager")
    before = (model / "classifier.safetensors").read_bytes()
    classified(capsys, labeled, pile)
    assert (model / "classifier.safetensors").read_bytes() != before
