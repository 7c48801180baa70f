"""How far a reader is behind its feed."""

from __future__ import annotations

from typing import NamedTuple


class Amount(NamedTuple):
    """Changes: the messages since the reader follows, and the bytes of logs."""

    messages: int = 0
    size_bytes: int = 0


class Lag(NamedTuple):
    """The changes that a reader has not confirmed, and how old the oldest is."""

    messages: int = 0
    size_bytes: int = 0
    ms: int = 0

    def statistics(self) -> dict[str, int]:
        return {"lag_messages": self.messages, "lag_bytes": self.size_bytes, "lag_ms": self.ms}
