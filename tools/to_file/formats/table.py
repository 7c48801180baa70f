"""All formats, by the words of --format."""

from __future__ import annotations

from tools.to_file.formats.framed import FRAMED
from tools.to_file.formats.jsonl import JSONL
from tools.to_file.formats.lines import LINES
from tools.to_file.formats.parquet import PARQUET

FORMATS = {form.name: form for form in (LINES, JSONL, FRAMED, PARQUET)}
