"""The interface of a log, for rooms that write lines and do not make the log."""

from __future__ import annotations

from typing import Protocol


class LineWriter(Protocol):
    """A log; `text % args` is the line. `nsqd_py.runtime.logs.daemon_log.Log` and `logging.Logger` fit."""

    def debug(self, text: str, /, *args: object) -> None: ...
    def info(self, text: str, /, *args: object) -> None: ...
    def warning(self, text: str, /, *args: object) -> None: ...
    def error(self, text: str, /, *args: object) -> None: ...
    def exception(self, text: str, /, *args: object) -> None: ...


class DaemonLog(LineWriter, Protocol):
    """The log of a daemon; `of_clients` is for lines that clients can cause."""

    @property
    def of_clients(self) -> LineWriter: ...
