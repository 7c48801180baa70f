"""Names of topics and channels, and how an error quotes a bad one; the name of the experiment."""

from __future__ import annotations

import re

EPHEMERAL_SUFFIX = "#ephemeral"
MAX_NAME_LENGTH = 64
DEAD_LETTERS_SUFFIX = ".dead"
# The experiment of Go's nsqd, for --enable-experiment.
TOPOLOGY_AWARE = "topology-aware-consumption"

_NAME = re.compile(rb"[.a-zA-Z0-9_-]+(?:#ephemeral)?")
_ESCAPES = {7: "\\a", 8: "\\b", 9: "\\t", 10: "\\n", 11: "\\v", 12: "\\f", 13: "\\r", 34: '\\"', 92: "\\\\"}


def is_valid_name(name: bytes) -> bool:
    """True for 1 to 64 bytes of letters, digits, `.`, `_`, `-`, with `#ephemeral` at most as the end."""
    return len(name) <= MAX_NAME_LENGTH and _NAME.fullmatch(name) is not None


def is_ephemeral(name: str) -> bool:
    """True for a topic or channel that is in memory only, and is deleted with its last user."""
    return name.endswith(EPHEMERAL_SUFFIX)


def dead_letter_topic(topic: str) -> str:
    """Return the topic that receives a topic's dead letters: `<topic>.dead`, cut to the longest valid name.

    A dead letter topic keeps its own dead letters: the result is the topic itself.
    """
    bare = topic.removesuffix(EPHEMERAL_SUFFIX)
    if bare.endswith(DEAD_LETTERS_SUFFIX):
        return topic
    suffix = DEAD_LETTERS_SUFFIX + topic[len(bare) :]
    return bare[: MAX_NAME_LENGTH - len(suffix)] + suffix


def quote(name: bytes) -> str:
    """Return the name in double quotes with unprintable characters escaped, as Go's `%q` verb does."""
    text = name.decode("utf-8", "surrogateescape")
    return '"' + "".join(map(_quote_character, text)) + '"'


def _quote_character(character: str) -> str:
    code = ord(character)
    if code in _ESCAPES:
        return _ESCAPES[code]
    if 0xDC80 <= code <= 0xDCFF:  # a byte that is not UTF-8
        return f"\\x{code - 0xDC00:02x}"
    if code < 0x20 or code == 0x7F:
        return f"\\x{code:02x}"
    if character == " " or character.isprintable():
        return character
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
