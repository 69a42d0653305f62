"""`{public-api} PACKAGE`: the docstring of a package, and each name that it offers, from its `__all__`."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from typing import Any, ClassVar

from docutils import nodes
from pydantic import BaseModel
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


def described(package: str, name: str, value: Any) -> Iterator[str]:
    """The lines of reStructuredText that describe one name."""
    if inspect.isclass(value):
        yield f".. autoclass:: {package}.{name}"
        if not issubclass(value, BaseModel):  # its fields are the keys of a document: docs/dsl.md
            yield "   :members:"
            yield "   :show-inheritance:" if issubclass(value, BaseException) else "   :inherited-members: Exception"
    elif callable(value):
        yield f".. autofunction:: {package}.{name}"
    else:
        yield f".. py:data:: {package}.{name}"
        yield from ["", *(f"   {line}" for line in (inspect.getdoc(type(value)) or "").splitlines())]
    yield ""


class PublicApi(SphinxDirective):
    required_arguments = 1
    seen: ClassVar[dict[str, str]] = {}
    """Full name -> the page that describes it: a second package may offer the same one."""

    def run(self) -> list[nodes.Node]:
        package = self.arguments[0]
        module = importlib.import_module(package)
        lines = [f".. automodule:: {package}", "   :no-members:", ""]
        for name in module.__all__:
            value = getattr(module, name)
            page = self.seen.setdefault(f"{getattr(value, '__module__', package)}.{name}", self.env.docname)
            if page == self.env.docname:
                lines += described(package, name, value)
            else:
                lines += [f"`{name}`: see :doc:`/{page}`.", ""]
        return self.parse_text_to_nodes("\n".join(["```{eval-rst}", *lines, "```"]))


def as_code(_app: Sphinx, _what: str, _name: str, _object: Any, _options: Any, lines: list[str]) -> None:
    """Docstrings indent code by four spaces, as Markdown does; reStructuredText wants `::` before it."""
    result: list[str] = []
    for index, line in enumerate(lines):
        begins = re.match(r" {4}\S", line) and index and not lines[index - 1].strip()
        if begins and not any(re.match(r"\s+\S", earlier) for earlier in result[-2:]):
            result += ["::", ""]
        result.append(line)
    lines[:] = result


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("public-api", PublicApi)
    app.connect("autodoc-process-docstring", as_code)
    return {"parallel_read_safe": True}
