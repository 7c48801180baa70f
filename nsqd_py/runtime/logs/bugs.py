"""Log lines about bugs: exceptions that no code expects. Clients get the number of the line; see `nsqd_py.errors`."""

from __future__ import annotations

from nsqd_py.errors import InternalError, bug_number
from nsqd_py.runtime.logs.lines import DaemonLog


def bug_text(bug: BaseException) -> str:
    """Return the text of the line about a bug, for the bug and where it was noticed.

    Lines that clients can cause are limited by text: to a burst, and then one a second. Each bug has a text.
    """
    return f"internal error {bug_number(bug)}: %r - %.100s"


def report_bug(log: DaemonLog, where: str, bug: BaseException) -> InternalError:
    """Write a line with the traceback of the bug that is being handled; return the error for clients.

    Both have the number of the bug.
    """
    log.of_clients.exception(bug_text(bug), bug, where)
    return InternalError(bug)
