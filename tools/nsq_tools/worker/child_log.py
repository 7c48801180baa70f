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
        methods = (log.debug, log.debug, log.info, log.warning)
        self._methods = dict(enumerate(methods))
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            self._log.exception("%s", text, error=error)
        else:
            self._methods.get(record.levelno // _STEP, self._log.error)("%s", text)


def take_logging(log: Log) -> None:
    """Write what `logging` gets to the log, unless the app has configured `logging`."""
    logging.basicConfig(level=log.level * _STEP, handlers=[_ToLog(log)])
