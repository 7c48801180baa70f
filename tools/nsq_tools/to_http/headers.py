"""The headers of a request. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

Headers = Mapping[str, str]

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_OWN = ("content-length", "transfer-encoding", "trailer")


def parse_header(text: str) -> tuple[str, str]:
    """`name: value` of a --header. Raises ValueError with what is wrong."""
    name, _, value = text.partition(":")
    name, value = name.strip(), value.strip()
    if not name or not value:
        raise ValueError("--header value format should be 'name: value'")
    if not _TOKEN.fullmatch(name) or _CONTROL.search(value):
        raise ValueError(f"--header {text!r} has characters that no header may have")
    if name.lower() in _OWN:
        raise ValueError(f"--header {name}: nsq-to-http sets it itself")
    return name, value


def merge_headers(defaults: Headers, given: Iterable[tuple[str, str]]) -> Headers:
    """The given ones in place of the defaults of the same name, in whatever case; the last of a name counts."""
    merged = {name.lower(): (name, value) for name, value in (*defaults.items(), *given)}
    return dict(merged.values())
