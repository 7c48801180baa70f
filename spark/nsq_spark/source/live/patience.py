"""Asks an nsqd that may be away for a moment: one that is started again answers within seconds."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from nsq_spark.archive.errors import ArchiveError
from nsq_spark.source.live.kept import NoTopic

T = TypeVar("T")

_PAUSE_S = 0.2
_log = logging.getLogger("nsqd_py.spark")


def patiently(question: Callable[[], T], give_up_after_s: float) -> T:
    """The answer. Raises NoTopic at once, and ArchiveError after so long."""
    deadline_s = time.monotonic() + give_up_after_s
    is_told = False
    while True:
        try:
            return question()
        except NoTopic:
            raise
        except ArchiveError as error:
            if time.monotonic() >= deadline_s:
                raise
            if not is_told:
                _log.warning("%s; trying again for %g s", error, give_up_after_s)
                is_told = True
            time.sleep(_PAUSE_S)
