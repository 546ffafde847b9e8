"""`datasets.prepare`: sources, options and folders that are refused, before anything is written."""

from pathlib import Path

import pytest

from semishot import datasets
from semishot.errors import InputError


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mini-imagenet", r"pass --source FOLDER with .*csv .*ILSVRC.*\.pkl"),
        ("tiered-imagenet", r"pass --source FOLDER with an ILSVRC-12 .*_png\.pkl"),
        ("omniglot", r"images_background.zip and images_evaluation.zip .*or pass --download"),
        ("folder", "pass --source FOLDER with images as class/image"),
    ],
)
def test_without_a_source_a_message_says_what_it_holds(tmp_path, name, message):
    with pytest.raises(InputError, match=message):
        datasets.prepare(name, None, tmp_path / "root")
    with pytest.raises(InputError, match="absent is not a folder; --source is a folder with"):
        datasets.prepare(name, tmp_path / "absent", tmp_path / "root")
    assert not (tmp_path / "root").exists()


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("glyphs", {}, "glyphs is drawn by code, not read from .*drop --source"),
        ("glyphs", {"reduction": "x"}, "--reduction belongs to omniglot, not to glyphs; drop it"),
        ("omniglot", {"lists": "x"}, "--lists belongs to mini-imagenet, not to omniglot; drop it"),
        ("omniglot", {"partial": True}, "omniglot is prepared whole; drop --partial"),
        ("omniglot", {"download": True}, "give either --source or --download, not both"),
        ("omniglot", {"size": 32}, "--name and --size apply only to `folder`"),
        ("omniglot", {"own_name": "mine"}, "--name and --size apply only to `folder`"),
        ("tiered-imagenet", {"splits": ["train"]}, "is prepared whole; drop --splits"),
        ("mini-imagenet", {"splits": ["dev"]}, "unknown split 'dev': choose from train, val, test"),
        ("folder", {"size": 513}, "--size must be from 16 to 512, not 513"),
        *(
            ("folder", {"own_name": name}, "cannot be the name of a pool")
            for name in ("omniglot", "../up", "", ".hidden", "downloads", "a/b", "x" * 65)
        ),
    ],
)
def test_an_option_that_does_not_apply_is_refused(tmp_path, name, options, message):
    with pytest.raises(InputError, match=message):
        datasets.prepare(name, tmp_path, tmp_path / "root", **options)
    assert not (tmp_path / "root" / name).exists()


def test_files_where_the_pool_goes_are_not_replaced(tmp_path):
    root = tmp_path / "data"
    mine = root / "folder"
    for path in (mine / "a/1.png", tmp_path / "elsewhere/c/1.png", tmp_path / "other/folder"):
        path.parent.mkdir(parents=True)
        path.touch()
    (tmp_path / "link").symlink_to(mine)
    for source in (mine, mine / "a", tmp_path / "link"):
        with pytest.raises(InputError, match="is where the pool goes.*pass --data-root"):
            datasets.prepare("folder", source, root)
    for source in (root, tmp_path / "elsewhere"):
        with pytest.raises(InputError, match="where the pool goes, holds a, which is not part"):
            datasets.prepare("folder", source, root)
    with pytest.raises(InputError, match="folder, where the pool goes, is not a folder"):
        datasets.prepare("folder", mine, tmp_path / "other")
    assert list(root.rglob("*")) == [mine, mine / "a", mine / "a/1.png"]
    assert Path(tmp_path / "other/folder").is_file()
