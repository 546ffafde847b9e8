"""What SECURITY.md promises and no other test shows."""

import base64
import hashlib
import io
import json
import os
import pickle
import pty
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import torch

from semishot.commands.exit_codes import one_line_errors
from semishot.data import image_sources
from semishot.datasets import tiered_imagenet
from semishot.errors import InputError
from semishot.image_encoders import load_encoder
from semishot.sorter.moving import move_files
from semishot.sorter.page import write_page
from semishot.training.loop import load_state, save_state
from sorter.test_page import fitted
from sorter.test_summary import summary
from support.own_images import draw, folders

TESTS = Path(__file__).parents[1]
CPU = torch.device("cpu")
WNID = "n01532829"


def everything(folder: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def jpeg(side: int = 20) -> bytes:
    file = io.BytesIO()
    draw("circle", 1, side).save(file, "jpeg")
    return file.getvalue()


# Archives


def test_links_devices_and_paths_in_tars_lead_nowhere(tmp_path):
    secret = tmp_path / "secret.JPEG"
    secret.write_bytes(jpeg())
    source = tmp_path / "source"
    source.mkdir()
    with tarfile.open(source / f"{WNID}.tar", "w") as opened:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE):
            member = tarfile.TarInfo(f"{WNID}_{int(kind)}.JPEG")
            member.type, member.linkname = kind, str(secret)
            opened.addfile(member)
        for number, name in ((7, f"../../{WNID}_7.JPEG"), (8, f"/{WNID}_8.JPEG")):
            member = tarfile.TarInfo(name)
            member.size = len(jpeg(20 + number))
            opened.addfile(member, io.BytesIO(jpeg(20 + number)))
    before = everything(tmp_path)
    found = image_sources.ilsvrc_files(source, [WNID])[WNID]
    assert [place.path for place in found] == [str(source / f"{WNID}.tar")] * 2
    for place in found:
        assert tiered_imagenet.read(place).shape == (3, 84, 84)
    assert everything(tmp_path) == before


# Models


@pytest.mark.parametrize(
    "name", ["/etc/passwd", "../other", "pretrained:../../omniglot", "https://example.org/x"]
)
def test_a_saved_model_names_no_other_file(name, tmp_path):
    framing = {"kind": "Whole", "height": 8, "width": 8}
    saved = {"format": 2, "encoder": name, "framing": framing}
    (tmp_path / "encoder.json").write_text(json.dumps(saved))
    with pytest.raises(InputError, match=f"no model in {tmp_path}"):
        load_encoder(tmp_path)


# Sorting files


@pytest.mark.parametrize("how", ["move", "copy", "link"])
@pytest.mark.parametrize("source", ["../.bashrc", "/etc/x", "way/x"])
def test_a_journal_acts_only_below_the_pile(how, source, tmp_path):
    """Not above it, and not through a link in it."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "pile").mkdir()
    (tmp_path / "pile/way").symlink_to(tmp_path / "elsewhere")
    target = tmp_path / "out/sorted/cat/payload"
    target.parent.mkdir(parents=True)
    target.write_bytes(b"evil")
    step = [source, "cat/payload", hashlib.sha256(b"evil").hexdigest(), "sorted"]
    about = {"format": 3, "how": how, "pile": str(tmp_path / "pile")}
    (tmp_path / "out/undo.json").write_text(json.dumps({**about, "steps": [step]}) + "\n")
    before = everything(tmp_path)
    for below in (None, tmp_path / "pile"):
        with pytest.raises((InputError, AssertionError)):
            assert not move_files.undo(tmp_path / "out", below).problems
    assert everything(tmp_path) == before


# Names


@pytest.mark.parametrize("error", [InputError, OSError])
def test_whatever_a_name_holds_an_ending_is_one_plain_line(error, capsys):
    with pytest.raises(SystemExit), one_line_errors():
        raise error("no \x1b]0;title\x07 \x9b31m\n\r\u202e" + "x" * 10_000)
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert said.rstrip("\n").isprintable()
    assert len(said) < 1100


def test_a_terminal_gets_no_escape_sequences_from_names(tmp_path):
    """As a person runs it, with a terminal: of files that are predicted and skipped."""
    labeled, pile = folders(tmp_path, pile=2, strangers=0)
    for name in ("\x1b[2J\x07.png", "a\x9b31m.txt", "b\x1b]0;x\x07.png"):
        shutil.copy(labeled / "circle/0.png", pile / name)
    (pile / "c\x1b[31m.png").write_bytes(b"damaged")
    encoder = ["--encoder", "omniglot"]
    where = ["--labeled", str(labeled), "--unlabeled", str(pile), "--out", str(tmp_path / "out")]
    for arguments in (
        ["classify", *where, *encoder],
        ["predict", str(tmp_path / "out"), str(pile)],
    ):
        said = in_a_terminal(arguments)
        for hostile in (b"\x1b[2J", b"\x07", b"\x1b]0", b"\x1b[31m.png", b"\xc2\x9b"):
            assert hostile not in said, (arguments, said)


def in_a_terminal(arguments: list[str]) -> bytes:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "semishot", *arguments]
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    said = b""
    try:
        while part := os.read(ours, 4096):
            said += part
    except OSError:  # how a terminal's other end says that it is over
        pass
    assert process.wait() == 0, said
    os.close(ours)
    return said


# What is written, and where


class Hostile:
    """Makes a file as soon as it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self):
        return Path.touch, (self.mark,)


def test_code_in_a_checkpoint_does_not_run(tmp_path):
    mark = tmp_path / "mark"
    save_state(tmp_path, {"step": Hostile(mark)})
    with pytest.raises(InputError, match="it is not a checkpoint of this version"):
        load_state(tmp_path / "state.pt")
    assert not mark.exists()
    pickle.loads(pickle.dumps(Hostile(mark)))
    assert mark.exists(), "it would not have run anywhere"


def test_the_page_of_a_pile_allows_its_own_style_and_script_and_nothing_else(tmp_path):
    write_page(tmp_path / "page.html", fitted([]), [], summary(), {})
    page = (tmp_path / "page.html").read_text("utf-8")
    for tag, rule in (("style", "style-src"), ("script", "script-src")):
        (content,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{rule} 'sha256-{digest}'" in page
    assert "default-src 'none'; img-src data: 'self' file:;" in page


# The network

COMMANDS = """\
import sys

def forbid(event, arguments):
    if event in ("socket.connect", "socket.bind", "socket.getaddrinfo", "socket.sendto"):
        raise RuntimeError(f"{event} {arguments}")
    if event == "socket.__new__" and arguments[1] in (2, 10):
        raise RuntimeError(f"{event} {arguments}")
if __name__ == "__main__":
    sys.addaudithook(forbid)
    from semishot.commands.main import main
    for line in sys.stdin.read().splitlines():
        main(line.split())
"""


def test_no_command_listens_or_connects(tiny_root, tmp_path):
    """All of them in a process in which whoever makes a socket of the internet is stopped."""
    folders(tmp_path, shots=2, pile=2, strangers=2)
    (tmp_path / "published/omniglot").mkdir(parents=True)
    published = TESTS.parent / "results/omniglot/table1-ren2018.json"
    shutil.copy(published, tmp_path / "published/omniglot")
    shape = "--way 2 --shot 1 --query 1 --unlabeled 1"
    lines = [
        "classify --labeled labeled --unlabeled pile --out out --encoder omniglot --apply copy",
        "predict out pile --json",
        "undo out",
        "export out --out model.onnx",
        "data prepare folder --source labeled --data-root root",
        f"train --updates 1 --filters 2 --labeled-fraction 0.5 --out run --device cpu {shape}",
        f"evaluate --model run --episodes 2 {shape}",
        "data list",
        "data verify glyphs",
        "show episode --model run --way 2 --query 1 --unlabeled 1 --distractors 1",
        "results --folder published --out page.md",
        "report published --episodes 0",
        "doctor",
    ]
    (tmp_path / "all.py").write_text(COMMANDS)
    for name in ("home", "tmp"):
        (tmp_path / name).mkdir()
    own = {"HOME": str(tmp_path / "home"), "TMPDIR": str(tmp_path / "tmp")}
    done = subprocess.run(
        [sys.executable, "all.py"],
        input="\n".join(lines),
        cwd=tmp_path,
        env={**os.environ, **own, "SEMISHOT_DATA": str(tiny_root)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    left = [path for name in own for path in Path(own[name]).rglob("*")]
    assert not [path for path in left if re.search(r"microsoft|onnxruntime|\.ses", str(path), re.I)]
    asked = subprocess.run(
        [sys.executable, "all.py"],
        input="data prepare omniglot --download",
        cwd=tmp_path,
        env={**os.environ, "SEMISHOT_DATA": str(tmp_path / "root")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert asked.returncode != 0, "the net has holes"
    assert "socket." in asked.stderr
