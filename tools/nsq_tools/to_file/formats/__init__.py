"""What files hold: a module for each format.

format   what a format has to offer
table    all formats, by the words of --format
lines    the body and a newline, as Go's nsq_to_file writes it
jsonl    a JSON object a line
framed   records with checksums, which can be split and searched
parquet  columns; written from a framed file when the file is complete
"""

from __future__ import annotations

from nsq_tools.to_file.formats.framed import FRAMED
from nsq_tools.to_file.formats.jsonl import JSONL
from nsq_tools.to_file.formats.lines import LINES
from nsq_tools.to_file.formats.parquet import PARQUET

FORMATS = {form.name: form for form in (LINES, JSONL, FRAMED, PARQUET)}
