"""Names of topics and channels, and how an error quotes a bad one."""

from __future__ import annotations

import re

EPHEMERAL_SUFFIX = "#ephemeral"
MAX_NAME_LENGTH = 64

_NAME = re.compile(rb"[.a-zA-Z0-9_-]+(?:#ephemeral)?")


def is_valid_name(name: bytes) -> bool:
    """True for 1 to 64 bytes of letters, digits, `.`, `_`, `-`, with `#ephemeral` at most as the end."""
    return len(name) <= MAX_NAME_LENGTH and _NAME.fullmatch(name) is not None


def is_ephemeral(name: str) -> bool:
    """True for a topic or channel that is kept in memory only and deleted with its last user."""
    return name.endswith(EPHEMERAL_SUFFIX)


def quote(name: bytes) -> str:
    """Return the name in double quotes. A byte that is not printable ASCII is shown as `\\xff`."""
    return '"' + repr(name)[2:-1].replace('"', '\\"') + '"'
