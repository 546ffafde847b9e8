"""What is running: the command without folders, the commit from git's files, a digest of code alone."""

from pathlib import Path

import pytest

from semishot.system import provenance

SOURCE = '''"""About this."""

x = "# not a comment"  # a comment


class A:
    """About A."""

    size: int = 3
    """About its size,
    in two lines."""

    def f(self):
        """About f."""
        return f"{self.size}"
'''


@pytest.fixture(autouse=True)
def _no_command():
    """Other tests run commands in this process, before these or after them."""
    provenance.note_command([])
    yield
    provenance.note_command([])


def test_the_command_leaves_out_what_names_a_folder_and_keeps_what_changes_a_number():
    assert provenance.command() == ""
    words = ["reproduce", "table1", "--runs", "/home/me/runs", "--splits", "3", "--publish=/x/y"]
    provenance.note_command([*words, "--models", "my method:A", "--data-root"])
    assert provenance.command() == "semishot reproduce table1 --splits 3 --models 'my method:A'"


def test_of_a_whole_path_the_command_keeps_the_name():
    provenance.note_command(["evaluate", "--model", "/home/me/runs/5way-ab12", "--allow=/x y/z"])
    assert provenance.command() == "semishot evaluate --model 5way-ab12 --allow=z"
    provenance.note_command(["pick", "runs/5way-ab12", "best.safetensors"])
    assert provenance.command() == "semishot pick runs/5way-ab12 best.safetensors"


def test_only_code_is_in_the_digest(tmp_path):
    def digest(text: str) -> str:
        (tmp_path / "some.py").write_text(text, encoding="utf-8")
        return provenance.source_digest([tmp_path / "some.py"])

    first = digest(SOURCE)
    assert len(first) == 12
    assert digest(SOURCE.replace("About", "Of")) == first
    assert digest(SOURCE.replace("# a comment", "").replace("\n\n\n", "\n")) == first
    for changed in ("size: int = 4", "size: float = 3"):
        assert digest(SOURCE.replace("size: int = 3", changed)) != first
    assert digest(SOURCE.replace("# not a comment", "# no comment")) != first
    assert provenance.without_words(SOURCE).splitlines() == [
        'x = "# not a comment"',
        "class A:",
        "    size: int = 3",
        "    def f(self):",
        '        return f"{self.size}"',
    ]


def test_the_commit_is_read_from_a_checkout_a_worktree_and_packed_references(tmp_path, monkeypatch):
    package, git = tmp_path / "src" / "semishot", tmp_path / ".git"
    monkeypatch.setattr(provenance, "PACKAGE", package)
    assert provenance.commit() == ""  # not a checkout

    def write(path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    write(git / "HEAD", "0123456789abcdef\n")
    assert provenance.commit() == "0123456789ab"  # detached
    write(git / "HEAD", "ref: refs/heads/some\n")
    assert provenance.commit() == ""  # no commit yet
    write(git / "packed-refs", "# pack-refs\nfedcba9876543210 refs/heads/some\n")
    assert provenance.commit() == "fedcba987654"
    write(git / "refs" / "heads" / "some", "abcdefabcdefabcdef\n")
    assert provenance.commit() == "abcdefabcdef"
    tree = tmp_path / "tree"
    write(tree / ".git", f"gitdir: {git}/worktrees/tree\n")
    write(git / "worktrees" / "tree" / "HEAD", "ref: refs/heads/some\n")
    write(git / "worktrees" / "tree" / "commondir", "../..\n")
    monkeypatch.setattr(provenance, "PACKAGE", tree / "src" / "semishot")
    assert provenance.commit() == "abcdefabcdef"
    write(tree / ".git", "\x00")
    assert provenance.commit() == ""
