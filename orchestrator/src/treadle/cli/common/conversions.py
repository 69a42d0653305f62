"""Values of options that need no conversion. typer converts every value by pydantic, whose import takes longer than a
short command."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, get_args, get_origin


def skip_conversions(command: Any) -> None:
    """Let typer convert only values of another type than the option's. Old versions have no such step."""
    found = command.get_params

    def params(ctx: Any) -> list[Any]:
        parameters: list[Any] = found(ctx)  # with `--help`
        for one in parameters:
            if hasattr(one, "get_runtime_param") and "get_runtime_param" not in vars(one):
                one.get_runtime_param = partial(_Conversion, one.get_runtime_param)
        return parameters

    command.get_params = params


class _Conversion:
    """Typer's conversion of a parameter, made when it is needed."""

    def __init__(self, convert: Callable[[], Any]) -> None:
        self._convert = convert

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        several = param.multiple or param.nargs == -1
        if value is None:
            return () if several else None
        if _is_of(value, param.type_descriptor.annotation):
            return list(value) if several else value
        return self._convert().coerce(value, param, ctx)


def _is_of(value: Any, kind: Any) -> bool:
    """True for a text, number, flag or choice of this type, and for a list of them."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is list:
        return isinstance(value, list | tuple) and all(_is_of(one, arguments[0]) for one in value)
    if arguments:
        return origin is Literal and value in arguments
    return kind in (str, int, float, bool) and type(value) is kind
