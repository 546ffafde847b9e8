"""A template, styles and a script -> one self-contained HTML page, which loads nothing else."""

import base64
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from semishot import __version__
from semishot.system.files import own_text

FOLDER = Path(__file__).parent
PAGE_STYLE = FOLDER / "page.css"
"""The style that all pages share."""


def render(template: Path, styles: Sequence[Path], script: Path, **values: Any) -> str:
    """Every value is escaped, and only these styles and this script may run."""
    environment = Environment(
        loader=FileSystemLoader(template.parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["code"] = with_code
    css = Markup("").join(Markup(own_text(style)) for style in styles)
    run = Markup(own_text(script))
    return environment.get_template(template.name).render(
        css=css,
        script=run,
        css_hash=digest(css),
        script_hash=digest(run),
        version=__version__,
        **values,
    )


def digest(text: str) -> str:
    """The hash of a style or script in the content security policy."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def with_code(text: str) -> Markup:
    """Escaped, with text in backquotes as code."""
    parts = [escape(part) for part in text.split("`")]
    marked = [Markup("<code>") + p + Markup("</code>") if i % 2 else p for i, p in enumerate(parts)]
    return Markup("").join(marked)
