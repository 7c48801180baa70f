"""When a file gets no more messages."""

from __future__ import annotations

from dataclasses import dataclass

from nsqd_py.settings.durations import format_duration


@dataclass(frozen=True, slots=True)
class Rotation:
    """The limits of one file; 0 is none. `size_bytes` counts before compression, as in Go's nsq_to_file."""

    size_bytes: int = 0
    interval_ns: int = 0

    def is_too_large(self, size_bytes: int) -> bool:
        return 0 < self.size_bytes < size_bytes

    def reason(self, old_name: str, new_name: str, size_bytes: int, age_ns: int) -> str | None:
        """Why a file of this name, size and age is to be followed by another; None: it is not."""
        if new_name != old_name:
            return f"new filename {new_name}"
        if 0 < self.interval_ns < age_ns:
            return f"{format_duration(age_ns)} since last open"
        if self.is_too_large(size_bytes):
            return f"{size_bytes} bytes (> {self.size_bytes})"
        return None

    def room(self, size_bytes: int) -> int | None:
        """How many bytes a file of this size takes; the message that goes beyond is its last. None: no limit."""
        return max(0, self.size_bytes - size_bytes) if self.size_bytes else None
