"""The log of a child: lines of its handlers, of the client and of the app, with the number of the process."""

from __future__ import annotations

import logging

from nsqd_py.runtime.logs.daemon_log import Log

# Levels of the log are 1 to 5, those of `logging` 10 to 50.
_STEP = 10


class _ToLog(logging.Handler):
    """Writes records of `logging` as lines of the log."""

    def __init__(self, log: Log) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        text = record.getMessage()
        if error is not None:
            self._log.exception("%s", text, error=error)
        elif record.levelno >= logging.ERROR:
            self._log.error("%s", text)
        elif record.levelno >= logging.WARNING:
            self._log.warning("%s", text)
        elif record.levelno >= logging.INFO:
            self._log.info("%s", text)
        else:
            self._log.debug("%s", text)


def take_logging(log: Log) -> None:
    """Write what `logging` gets to the log, unless the app has configured `logging`."""
    logging.basicConfig(level=log.level * _STEP, handlers=[_ToLog(log)])
