"""OUT: a user's files in it are neither replaced nor written through a link."""

import pytest

from semishot.commands.main import main
from semishot.errors import InputError
from semishot.sorter.out_folder import check_out
from support.commands import refusal
from support.own_images import DRAWN, draw, folders, save


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("model/sub/thesis.txt", "model/sub is not part of a saved model, and would be deleted"),
        ("model/thesis.txt", "thesis.txt is not part of a saved model, and would be deleted"),
        ("model/encoder.json", "has no classifier.safetensors, and would be replaced"),
        ("model", "model is a link or not a folder, and would be replaced"),
    ],
)
def test_a_folder_of_the_users_is_not_replaced(capsys, tmp_path, name, message):
    labeled, pile = folders(tmp_path, shots=1, pile=1, strangers=0)
    mine = tmp_path / "proj" / name
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    given = ["--labeled", labeled, "--unlabeled", pile, "--out", tmp_path / "proj"]
    assert message in refusal(capsys, "classify", *given, *DRAWN)
    files = {path: path.read_bytes() for path in (tmp_path / "proj").rglob("*") if path.is_file()}
    assert files == {mine: b"mine"}


@pytest.mark.parametrize("name", ["model", ".features.npy"])
def test_a_link_in_the_output_leads_nowhere(tmp_path, name):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match=f"{name} is a link"):
        check_out(tmp_path / "out")


def test_what_was_ours_or_is_empty_is_replaced(capsys, tmp_path):
    labeled, pile = folders(tmp_path, shots=1, pile=1, strangers=0)
    out = tmp_path / "out"
    (out / "model").mkdir(parents=True)
    (out / ".features.npy").write_text("of a killed run")
    given = ["classify", "--labeled", labeled, "--unlabeled", pile, "--out", out, *DRAWN]
    main(list(map(str, given)))
    save(draw("cross", 9), pile / "cross-9.png")
    (out / "model" / ".DS_Store").write_text("of a file manager")
    before = (out / "model" / "classifier.safetensors").read_bytes()
    main(list(map(str, given)))
    assert (out / "model" / "classifier.safetensors").read_bytes() != before
