"""The price of a unit, from the user's table if there is one, else from treadle's own."""

from __future__ import annotations

import tomllib
from importlib.resources import files

import msgspec
from msgspec import Struct

from treadle.primitives.errors import UsageError

from ..environment.home import Home


class Rates(Struct, frozen=True, forbid_unknown_fields=True):
    """The prices of a kind of executor. A kind without an entry costs nothing."""

    call: float = 0.0
    gigabyte_second: float = 0.0
    second_rounding: float = 0.0
    """A call is billed in steps of this many seconds, rounded up. 0: not rounded."""
    cpu_second: float = 0.0
    temporary_gigabyte_second: float = 0.0
    """Price of the temporary folder beyond its free part."""


class StoreRates(Struct, frozen=True, forbid_unknown_fields=True):
    """The prices of a kind of store. The URL's scheme names the kind."""

    put: float = 0.0
    """Price of a PUT, COPY, POST or LIST."""
    get: float = 0.0
    """Price of a GET or HEAD."""
    gigabyte: float = 0.0
    """Price of 2^30 bytes that leave the store."""


class Prices(Struct, frozen=True, forbid_unknown_fields=True):
    """A table of prices."""

    currency: str
    date: str
    """The date of the look-up."""
    source: str
    """The place of the look-up."""
    executors: dict[str, Rates] = {}
    stores: dict[str, StoreRates] = {}
    action: float = 0.0
    """Price of one action of the orchestrator."""


def load_prices(home: Home) -> Prices:
    """`prices.toml` of the home folder, else treadle's own table. Raises UsageError for a table that cannot be read."""
    file = home.path / "prices.toml"
    table = file if file.exists() else files(__package__).joinpath("prices.toml")
    try:
        return msgspec.convert(tomllib.loads(table.read_text("utf-8")), Prices)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise UsageError(f"{file}: {error}", "Mend it; docs/cost.md says what it holds.") from None
