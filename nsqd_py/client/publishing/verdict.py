"""What an error that answers a publish means for it, and for what was sent behind it over the same connection.

All of these end the connection. Where the command itself was at fault, nsqd has looked at nothing behind it.
"""

from __future__ import annotations

from typing import NamedTuple


class Verdict(NamedTuple):
    """is_for_another  another nsqd may take it: this one could not store it, or not find out whether it may
    is_rest_unread  what was sent behind it has certainly not been stored
    """

    is_for_another: bool
    is_rest_unread: bool


_AT_FAULT = Verdict(is_for_another=False, is_rest_unread=True)
_NOT_STORED = Verdict(is_for_another=True, is_rest_unread=False)
_UNKNOWN_CODE = Verdict(is_for_another=False, is_rest_unread=False)

_VERDICTS = {
    "E_INVALID": _AT_FAULT,
    "E_BAD_TOPIC": _AT_FAULT,
    "E_BAD_MESSAGE": _AT_FAULT,
    "E_BAD_BODY": _AT_FAULT,
    "E_AUTH_FIRST": _AT_FAULT,
    "E_UNAUTHORIZED": _AT_FAULT,
    "E_AUTH_FAILED": _NOT_STORED,
    "E_PUB_FAILED": _NOT_STORED,
    "E_MPUB_FAILED": _NOT_STORED,
    "E_DPUB_FAILED": _NOT_STORED,
}


def verdict_on(code: str) -> Verdict:
    return _VERDICTS.get(code, _UNKNOWN_CODE)
