"""Writes a spec as YAML 1.2 that reads back as an equal spec."""

from __future__ import annotations

import yaml

from ..model import Spec
from ..normalise import as_written
from .scalars import resolve


def to_yaml(spec: Spec) -> str:
    """Return the document with its written keys, in their order."""
    return yaml.dump(as_written(spec), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)


class _Dumper(yaml.SafeDumper):
    """PyYAML quotes strings that YAML 1.1 would misread; in YAML 1.2 `1e3`, `08` and `0o17` are numbers too.

    It folds Unicode line breaks away, unless they are escaped.
    """


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = '"' if _BREAKS.intersection(text) or not _is_text(text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style)


def _is_text(plain: str) -> bool:
    try:
        return isinstance(resolve(plain, None, plain=True), str)
    except ValueError:
        return False


_BREAKS = frozenset("\x85\u2028\u2029")


_Dumper.add_representer(str, _text)
