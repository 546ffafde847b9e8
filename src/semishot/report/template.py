"""A template, a style and a script -> one self-contained HTML page."""

import base64
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from semishot import __version__

HERE = Path(__file__).parent


def render(template: str, styles: Sequence[str], script: str, **values: Any) -> str:
    """Every value is escaped, and only this style and script may run."""
    environment = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["code"] = with_code
    css = Markup("").join(Markup((HERE / name).read_text("utf-8")) for name in styles)
    run = Markup((HERE / script).read_text("utf-8"))
    return environment.get_template(template).render(
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
