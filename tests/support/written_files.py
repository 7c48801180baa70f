"""Reading the files that nsq-to-file writes, by other means than its own where there are such."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet

from nsqd_py.diskqueue.messages import Messages, decode_messages
from nsqd_py.diskqueue.records import FILE_HEADER_BYTES, FileHeader

MANIFEST = "_nsq_manifest"


def message_files(directory: Path) -> list[Path]:
    """All that were written for messages, in all directories below."""
    return sorted(
        path for path in directory.rglob("*") if path.is_file() and not path.name.startswith((".", "_"))
    )


def leftovers(directory: Path) -> list[str]:
    """What only a run that was killed leaves."""
    return sorted(path.name for path in directory.rglob(".nsq_to_file*"))


def manifest(directory: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (directory / MANIFEST).read_bytes().splitlines()]


def plain_bytes(path: Path) -> bytes:
    """Decompressed to its end; raises where it is torn."""
    data = path.read_bytes()
    if path.suffix == ".gz":
        return gzip.decompress(data)
    if path.suffix == ".zst":
        return pa.CompressedInputStream(pa.BufferReader(data), "zstd").read()
    return data


def records(path: Path) -> list[Messages]:
    """Each record, one directly behind the other to the end."""
    data = path.read_bytes()
    salt = FileHeader.decode(data).salt
    found = []
    position = FILE_HEADER_BYTES
    while position < len(data):
        messages, position = decode_messages(data, position, salt)
        found.append(messages)
    return found


def json_rows(path: Path) -> list[dict[str, Any]]:
    """A row for each message, with the body as bytes."""
    rows = [json.loads(line) for line in plain_bytes(path).split(b"\n")[:-1]]
    for row in rows:
        encoded = row.pop("body_base64", None)
        row["body"] = row["body"].encode() if encoded is None else base64.b64decode(encoded)
    return rows


def bodies(path: Path) -> list[bytes]:
    """Of any format, by the name of the file. Fails where the file cannot be read to its end."""
    name = path.name.removesuffix(".gz").removesuffix(".zst")
    if name.endswith(".jsonl"):
        return [row["body"] for row in json_rows(path)]
    if name.endswith(".framed"):
        return [body for messages in records(path) for body in messages.bodies]
    if name.endswith(".parquet"):
        return parquet.read_table(path.absolute()).column("body").to_pylist()
    lines = plain_bytes(path).split(b"\n")
    assert lines.pop() == b"", f"{path} ends inside a line"
    return lines


def all_bodies(directory: Path) -> list[bytes]:
    return [body for path in message_files(directory) for body in bodies(path)]
