"""The id of a message and its work in one transaction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Once:
    """Applies each message once: its id is inserted into a table in the transaction of the handler."""

    def __init__(
        self,
        connect: Callable[[], Any],
        key: Callable[[Any], str] | None = None,
        table: str = "nsqd_py_applied",
    ) -> None:
        self.connect = connect
        self.key = key
        self.table = table
