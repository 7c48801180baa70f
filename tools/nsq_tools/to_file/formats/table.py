"""All formats, by the words of --format."""

from __future__ import annotations

from nsq_tools.to_file.formats.framed import FRAMED
from nsq_tools.to_file.formats.jsonl import JSONL
from nsq_tools.to_file.formats.lines import LINES
from nsq_tools.to_file.formats.parquet import PARQUET

FORMATS = {form.name: form for form in (LINES, JSONL, FRAMED, PARQUET)}
