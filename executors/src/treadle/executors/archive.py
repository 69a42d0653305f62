"""Reproducible zip archives of code."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping

_DATE = (1980, 1, 1, 0, 0, 0)


def zipped(entries: Mapping[str, bytes], mode: int) -> bytes:
    """A zip archive of `entries` (path -> content). All entries have one fixed date and the mode `mode`, and are
    sorted, so equal entries give equal bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(entries):
            info = zipfile.ZipInfo(name, _DATE)
            info.external_attr = mode << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, entries[name])
    return buffer.getvalue()
