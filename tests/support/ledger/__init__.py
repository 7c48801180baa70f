"""The ledger: what the clients of an nsqd did and saw, written down while it happens, and judged afterwards.

    history = History(tmp_path / "history.jsonl")
    history.created("orders", "billing")
    publish = history.sending("orders", [b"1"])
    ...                                            # PUB, and OK comes
    history.ok(publish)
    delivery = history.delivered("orders", "billing", b"1", message_id=message.id, attempts=1)
    history.fin(delivery)
    history.drained("orders", "billing")
    judge(history).require_sound()

history.py   a history: one operation a line, as JSON; operations are appended from any thread
bodies.py    bodies that differ
story.py     the operations put together: what became of each publish, and of each message in each channel
serving.py   who serves, where a standby takes over
cuts.py      operations that move a channel: emptying, deleting, seeking
checks.py    the rules, each a pure function that returns what breaks it
verdict.py   all findings of a history, with its counts, and `compare` for tests that have lists
__main__.py  `python -m tests.support.ledger FILE` checks a history, and exits with 1 if something is wrong
"""

from __future__ import annotations

from tests.support.ledger.bodies import Bodies
from tests.support.ledger.checks import CHECKS, EXTRA_CHECKS, Finding
from tests.support.ledger.history import FOREVER_NS, History, Kind, Operation, name_of, read_history
from tests.support.ledger.verdict import Verdict, compare, judge, lost_so_far

__all__ = [
    "CHECKS",
    "EXTRA_CHECKS",
    "FOREVER_NS",
    "Bodies",
    "Finding",
    "History",
    "Kind",
    "Operation",
    "Verdict",
    "compare",
    "judge",
    "lost_so_far",
    "name_of",
    "read_history",
]
