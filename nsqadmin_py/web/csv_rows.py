"""Rows of a view as CSV, for spreadsheets. Pure."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from typing import Any

# A spreadsheet takes a text that begins with one of these for a formula. Names come from other programs.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def to_csv(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return a header and a line for each row, with the columns of the first row; null is empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    columns: list[str] = []
    for row in rows:
        if not columns:
            columns = list(row)
            writer.writerow(columns)
        writer.writerow([_cell(row.get(name)) for name in columns])
    return text.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):  # of problems or latencies
        return " ".join(str(part.get("kind", part.get("ns", ""))) for part in value)
    if isinstance(value, str) and value.startswith(_FORMULA):
        return f"'{value}"
    return value
