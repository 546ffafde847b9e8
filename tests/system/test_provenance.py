"""Where a number comes from: the command without folders, the commit, a digest of code alone."""

import subprocess

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


def test_the_commit_is_that_of_the_checkout(tmp_path, monkeypatch):
    monkeypatch.setattr(provenance, "PACKAGE", tmp_path / "src" / "semishot")
    assert provenance.commit() == ""  # not a checkout
    git = ["git", "-C", str(tmp_path), "-c", "user.name=me", "-c", "user.email=me@example.org"]
    subprocess.run([*git, "init", "-q"], check=True)
    assert provenance.commit() == ""  # no commit yet
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "one"], check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    assert provenance.commit() == head.stdout[:12]
