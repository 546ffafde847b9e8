"""The site builds without a warning and loads nothing from elsewhere."""

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from semishot.estimator.classifier import PrototypeClassifier

ROOT = Path(__file__).parents[2]
LOADS = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src"}
ELSEWHERE = ("http:", "https:", "//")


class Loaded(HTMLParser):
    """What a page loads by itself; links that a reader may follow are none of it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        held = dict(attrs)
        if tag in LOADS and held.get("rel") not in ("canonical", "next", "prev"):
            self.addresses.append(held.get(LOADS[tag]) or "")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("mkdocs", reason="the extra `docs` is not installed")
    pytest.importorskip("mkdocstrings", reason="the extra `docs` is not installed")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


def test_pages_load_nothing_from_elsewhere(site):
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 20
    for page in pages:
        for address in Loaded(page.read_text(encoding="utf-8")).addresses:
            assert not address.startswith(ELSEWHERE), (page.name, address)
    for style in site.rglob("*.css"):
        text = style.read_text(encoding="utf-8")
        assert not re.search(r"(?:@import|url\()\s*['\"]?(?:https?:)?//", text), style.name


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(site, chromium, scheme):
    """On a page of each kind: names, contrast, headings, tables that scroll, links among words."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page = chromium.new_page(viewport={"width": 1280, "height": 800}, color_scheme=scheme)
    for name in ("index", "sort_photographs", "cli", "results", "api/estimator", "clusters"):
        page.goto((site / f"{name}.html").as_uri())
        page.wait_for_selector(".md-search[aria-label]", state="attached")
        assert [v["id"] for v in axe.run(page).response["violations"]] == [], name
    page.close()


def test_the_reference_explains_every_parameter_and_fitted_attribute(site):
    page = (site / "api" / "estimator.html").read_text(encoding="utf-8")
    known = PrototypeClassifier()
    fitted = vars(known.fit([[0.0, 1.0], [1.0, 0.0], [0.1, 0.9]], [0, 1, -1]))
    names = {name for name in fitted if not name.startswith("_")}
    names |= {"cutoff_", "prototypes_", "feature_names_in_"}
    assert {"classes_", "fitted_", "message_"} < names
    for name in names:
        assert re.search(rf">{name}<", page), name
    text = PrototypeClassifier.__doc__ or ""
    for name in known.get_params():
        assert re.search(rf"^    {name}\n        \w", text, re.MULTILINE), name
