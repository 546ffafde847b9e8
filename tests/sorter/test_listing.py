"""Which files are looked at: folders, tables, and everything odd that lies in them."""

import os

import pytest

from semishot.data.decoding import EXTENSIONS
from semishot.sorter import listing
from semishot.sorter.label_tables import from_table
from semishot.sorter.listing import as_label, from_folders


def touch(path, text="x"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def shown(listing, root):
    return {(os.path.relpath(item.path, root), item.label) for item in listing.items}


def reasons(listing, root):
    return {os.path.relpath(one.shown, root): one.reason for one in listing.skipped}


@pytest.fixture
def tree(tmp_path):
    for name in (
        "labeled/cat/1.jpg",
        "labeled/cat/deep/2.JPG",
        "labeled/dog/3.png",
        "pile/a/4.webp",
    ):
        touch(tmp_path / name)
    touch(tmp_path / "pile/5")
    return tmp_path


def test_classes_are_folders_and_the_pile_is_a_tree(tree):
    listing = from_folders(tree / "labeled", [tree / "pile"])
    assert shown(listing, tree) == {
        ("labeled/cat/1.jpg", "cat"),
        ("labeled/cat/deep/2.JPG", "cat"),
        ("labeled/dog/3.png", "dog"),
        ("pile/a/4.webp", None),
        ("pile/5", None),
    }
    labels = [item.label for item in listing.items]
    assert labels == sorted(labels, key=lambda label: label is None)  # labeled first
    assert not listing.skipped
    assert not listing.notes


def test_what_is_no_image_is_named_with_its_reason(tree, monkeypatch):
    monkeypatch.setattr(listing, "EXTENSIONS", EXTENSIONS - {".heic"})  # without the extra
    touch(tree / "labeled/readme.jpg")
    touch(tree / "labeled/.DS_Store")
    touch(tree / "pile/notes.txt")
    touch(tree / "pile/IMG_1.HEIC")
    touch(tree / "pile/more.ZIP")
    touch(tree / "pile/.hidden/6.jpg")
    touch(tree / "pile/__MACOSX/6.jpg")
    (tree / "pile/gone.jpg").symlink_to(tree / "nowhere")
    os.mkfifo(tree / "pile/pipe.jpg")
    found = from_folders(tree / "labeled", [tree / "pile"])
    assert reasons(found, tree) == {
        "labeled/readme.jpg": "is not in the folder of a class",
        "pile/notes.txt": "the file name has no image extension",
        "pile/IMG_1.HEIC": ".heic files cannot be read; convert it to JPEG or PNG, or pip install "
        "'semishot[heic]' (with GPL code)",
        "pile/more.ZIP": "is not an image, but an archive: unpack it first",
        "pile/gone.jpg": "cannot be opened (No such file or directory)",
        "pile/pipe.jpg": "not a regular file",
    }
    assert len(found.items) == 5


def test_a_folder_within_another_belongs_to_itself_alone(tree):
    """The pile among the classes, the classes in the pile, the output in either."""
    inner = tree / "labeled" / "pile"
    (tree / "pile").rename(inner)
    touch(tree / "labeled/out/sorted/8.jpg")
    listing = from_folders(tree / "labeled", [inner], [tree / "labeled/out"])
    assert {label for _, label in shown(listing, tree)} == {"cat", "dog", None}
    assert len(listing.items) == 5
    assert not listing.notes
    touch(tree / "9.jpg")
    around = from_folders(tree / "labeled", [tree], [tree / "labeled/out"])
    assert [os.path.relpath(i.path, tree) for i in around.items if i.label is None] == ["9.jpg"]
    assert sum(item.label is not None for item in around.items) == 5  # now `pile` is a class


def test_a_table_names_paths_from_where_it_lies(tmp_path):
    table = touch(
        tmp_path / "t.csv",
        '\ufeffcorrect,label,path\n1,cat,a/1.jpg\n2,,b.png\n3,"a ""dog""",../c.gif\n4,x,\n',
    )
    listing = from_table(table)
    assert [(item.shown, item.label) for item in listing.items] == [
        (f"{tmp_path}/a/1.jpg", "cat"),
        (f"{tmp_path}/../c.gif", 'a "dog"'),
        (f"{tmp_path}/b.png", None),
    ]
    assert listing.items[0].path == tmp_path / "a/1.jpg"
    assert not listing.corrections  # that column means predictions.csv only
    assert [one.reason for one in listing.skipped] == ["names no path"]


def test_a_label_is_one_printable_line_of_bounded_length():
    names = ["Great\ntit ", "a\x1bb", "x" * 300, "e\u0301", " STRANGER", "", "\u200b"]
    assert [as_label(name) for name in names] == [
        *("Great tit", "a?b", "x" * 100, "\xe9", "stranger", "", "?"),
    ]
