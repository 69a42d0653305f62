"""What a unit costs: treadle's own table, or the user's in its place."""

from __future__ import annotations

import tomllib
from importlib.resources import files

import msgspec
from msgspec import Struct

from treadle.primitives.errors import UsageError

from ..environment.home import Home


class Rates(Struct, frozen=True, forbid_unknown_fields=True):
    """Of a kind of executor. One without an entry costs nothing."""

    call: float = 0.0
    gigabyte_second: float = 0.0
    second_rounding: float = 0.0
    """A call is billed in steps of so many seconds, rounded up; 0: as it is."""
    cpu_second: float = 0.0
    temporary_gigabyte_second: float = 0.0
    """Of the temporary folder, beyond what there is for nothing."""


class StoreRates(Struct, frozen=True, forbid_unknown_fields=True):
    """Of a kind of store, by the scheme of its URL."""

    put: float = 0.0
    """Also of COPY, POST and LIST."""
    get: float = 0.0
    """Also of HEAD."""
    gigabyte: float = 0.0
    """Of 2^30 bytes that leave the store."""


class Prices(Struct, frozen=True, forbid_unknown_fields=True):
    """A table of prices."""

    currency: str
    date: str
    """When they were looked up."""
    source: str
    """Where."""
    executors: dict[str, Rates] = {}
    stores: dict[str, StoreRates] = {}
    action: float = 0.0
    """Of the orchestrator."""


def load_prices(home: Home) -> Prices:
    """`prices.toml` of the home folder, else treadle's own. Raises UsageError for a table that cannot be read."""
    file = home.path / "prices.toml"
    table = file if file.exists() else files(__package__).joinpath("prices.toml")
    try:
        return msgspec.convert(tomllib.loads(table.read_text("utf-8")), Prices)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise UsageError(f"{file}: {error}", "Mend it; docs/cost.md says what it holds.") from None
