"""Templates to HTML: one environment for pages, partials and what the socket sends."""

from __future__ import annotations

import functools
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from xgw.resources import resource_folder
from xgw.web import imported, unseen, words
from xgw.web.assets import assets
from xgw.web.markdown import markdown
from xgw.web.placing import Placing
from xgw.web.rooting import Rooting


@functools.cache
def environment() -> Environment:
    """Everything that is put in is escaped; a name that is not given is an error."""
    made = Environment(
        loader=FileSystemLoader(resource_folder("templates")),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        auto_reload=False,
        extensions=(Rooting, Placing),
        cache_size=-1,
    )
    made.filters.update(words.FILTERS)
    made.filters["markdown"] = markdown
    made.filters.update(unseen.FILTERS)
    made.globals.update(words.GLOBALS)
    made.globals.update(imported.GLOBALS)
    made.globals["asset"] = assets().url
    return made


def render(template: str, **values: Any) -> str:
    """The HTML of a template."""
    return environment().get_template(template).render(**values)
