"""The latest actions that were done through this nsqadmin: who, when, from where, on what, with what result.

Pure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from nsqadmin_py.permissions import Scope
from nsqd_py.cluster.values import read_as, rows_in, text_in

# The most actions that are saved. Older ones are only in the log.
MOST_ENTRIES = 2000
_MOST_CHARACTERS = 200  # of each text
_MOST_OF_RESULT = 500
_MOST_DETAILS = 10

# The outcome of an action: on all nsqds, on some of them, or on none.
DONE = "done"
PARTLY = "partly"
NOT_DONE = "failed"
_STATES = (DONE, PARTLY, NOT_DONE)
_TEXTS = ("action", "user", "address", "topic", "channel", "node", "result")


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One action at `time_s`, in s since the epoch.

    user         the user or `token:NAME`; empty if unknown
    is_verified  True if a login or a trusted proxy proves the name
    address      `host:port` of the client, or `@` for a unix socket
    details      further arguments of the action
    result       `ok`, or what failed
    """

    time_s: float
    action: str
    user: str = ""
    is_verified: bool = False
    address: str = ""
    topic: str = ""
    channel: str = ""
    node: str = ""
    details: Mapping[str, str] = field(default_factory=dict)
    state: str = DONE
    result: str = "ok"

    @property
    def target(self) -> str:
        """The topic that gets requeued messages; else the topic, `topic/channel`, nsqd or option acted on."""
        name = "/".join(filter(None, (self.topic, self.channel)))
        return self.details.get("target") or name or self.node or self.details.get("option", "")

    def shortened(self) -> AuditEntry:
        """Return the entry with texts of limited length that can be written as JSON."""
        texts: dict[str, Any] = {name: _short(getattr(self, name)) for name in _TEXTS}
        texts["result"] = _short(self.result, _MOST_OF_RESULT)
        first = list(self.details.items())[:_MOST_DETAILS]
        details = {name: _short(value) for name, value in first}
        return replace(self, details=details, **texts)

    def visible(self, scope: Scope, *, sees_addresses: bool) -> AuditEntry | None:
        """Return what a user with these permissions may see of the entry; None for nothing.

        Without a topic, an action concerns all users: it is for those who may view every topic.
        """
        if not scope.sees(self.topic):
            return None
        shown = self if sees_addresses else replace(self, address="")
        target = self.details.get("target", "")
        if not target or scope.sees(target):
            return shown
        details = {name: value for name, value in self.details.items() if name != "target"}
        # An error may name the hidden topic.
        if self.state == DONE:
            result = self.result
        else:
            result = self.state
        return replace(shown, details=details, result=result)

    def contains(self, words: list[str]) -> bool:
        """True if each word is in one of its texts. Words are in lower case."""
        texts = [getattr(self, name) for name in _TEXTS]
        texts.append(self.state)
        texts += self.details.values()
        text = "\n".join(texts).lower()
        return all(word in text for word in words)


def _short(text: str, most: int = _MOST_CHARACTERS) -> str:
    shown = text if len(text) <= most else f"{text[:most]}…"
    return shown.encode("utf-8", "replace").decode()


@dataclass(frozen=True, slots=True)
class AuditQuery:
    """A search in the trail: all words of `search`, and the exact values of `fields`."""

    search: str = ""
    fields: Mapping[str, str] = field(default_factory=dict)
    only_failed: bool = False

    def fits(self, entry: AuditEntry) -> bool:
        if self.only_failed and entry.state == DONE:
            return False
        has_fields = all(getattr(entry, name) == value for name, value in self.fields.items())
        if not has_fields:
            return False
        return entry.contains(self.search.lower().split())


class AuditTrail:
    """The last MOST_ENTRIES entries."""

    def __init__(self) -> None:
        self._entries: deque[AuditEntry] = deque(maxlen=MOST_ENTRIES)

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, entry: AuditEntry) -> None:
        self._entries.append(entry.shortened())

    def find(self, query: AuditQuery, scope: Scope, *, sees_addresses: bool) -> Iterator[AuditEntry]:
        """Yield what a user may see of the entries that fit, newest first.

        A search finds nothing that is hidden.
        """
        for entry in reversed(self._entries):
            seen = entry.visible(scope, sees_addresses=sees_addresses)
            if seen is not None and query.fits(seen):
                yield seen

    # ---- in its file

    def dump(self) -> list[AuditEntry]:
        """Return what is a document for `load` as JSON."""
        return list(self._entries)

    def load(self, document: Any) -> None:
        """Put what `dump` returned before the entries. What is not an entry is left out."""
        known = list(self._entries)
        self._entries.clear()
        for row in rows_in({"entries": document}, "entries"):
            if isinstance(row.get("time_s"), float | int) and text_in(row, "state") in _STATES:
                self.add(_entry_of(row))
        self._entries.extend(known)


def _entry_of(row: Mapping[str, Any]) -> AuditEntry:
    texts = {}
    details = row.get("details")
    if isinstance(details, dict):
        texts = {name: value for name, value in details.items() if isinstance(value, str)}
    return read_as(AuditEntry, row, time_s=float(row["time_s"]), details=texts)
