"""The formats of files, one module each, and the table of --format.

format   the interface of a format
lines    the body and a newline, as Go's nsq_to_file writes it
jsonl    a JSON object a line
framed   records with checksums, which can be split and searched
parquet  columns; made from a framed file when the file is complete
"""

from __future__ import annotations

from nsq_tools.to_file.formats.framed import FRAMED
from nsq_tools.to_file.formats.jsonl import JSONL
from nsq_tools.to_file.formats.lines import LINES
from nsq_tools.to_file.formats.parquet import PARQUET

# By the value of --format.
FORMATS = {form.name: form for form in (LINES, JSONL, FRAMED, PARQUET)}
