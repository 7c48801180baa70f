"""Reading the stored files of a log for channels, in threads."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import gevent

from nsqd_py.broker.disk.slow_disk import MOST_PIECES, StillReading, disk_error
from nsqd_py.broker.services import BrokerServices
from nsqd_py.diskqueue.history import HistoryFile, LogHistory, missing_piece, read_stored_piece
from nsqd_py.diskqueue.reading import Piece
from nsqd_py.runtime.threads import in_thread

# While a store does not answer, a channel that needs a stored file tries again after so long, and then twice as long.
_FIRST_RETRY_NS = 1_000_000_000
_LONGEST_RETRY_NS = 30_000_000_000
# For how long the store must say that it does not have a file until channels pass over it.
_MISSING_AFTER_NS = 60_000_000_000


class StoredReader:
    """Reads stored files of one log for channels, in threads.

    A channel that needs one waits until it is read, also while the store does not answer: then the log says so, and the next
    attempt follows after 1 s, or later. Nothing is passed over but a file that the store, as it says for a minute, does not have.

    on_read  called when a thread has read something, or could not
    """

    __slots__ = (
        "_asked",
        "_clock",
        "_history",
        "_log",
        "_missed_ns",
        "_name",
        "_on_read",
        "_pieces",
        "_retry_delay_ns",
        "_retry_ns",
        "_threadpool",
    )

    def __init__(
        self,
        topic_name: str,
        history: LogHistory,
        services: BrokerServices,
        threadpool: Any,
        on_read: Callable[[], None],
    ) -> None:
        self._name = topic_name
        self._history = history
        self._log = services.log
        self._clock = services.clock
        self._threadpool = threadpool
        self._on_read = on_read
        self._pieces: OrderedDict[tuple[str, int], Piece] = OrderedDict()
        self._asked: set[tuple[str, int]] = set()
        self._missed_ns: dict[str, int] = {}  # since when the store does not have a file, by name
        self._retry_ns = 0
        self._retry_delay_ns = _FIRST_RETRY_NS

    def read(self, file: HistoryFile, seq: int) -> Piece:
        """Return what `read_stored_piece` returns. Raises StillReading; call again after `on_read`, or later."""
        key = file.name, seq
        piece = self._pieces.pop(key, None)
        if piece is not None:
            return piece
        if key not in self._asked and self._clock() >= self._retry_ns:
            self._asked.add(key)
            gevent.spawn(self._read_in_thread, key, file)
        raise StillReading

    def _read_in_thread(self, key: tuple[str, int], file: HistoryFile) -> None:
        try:
            piece = in_thread(self._threadpool, read_stored_piece, file, key[1])
        except Exception as error:  # noqa: BLE001 - after a bug, the channel must not wait forever without a word
            if isinstance(error, FileNotFoundError) and self._is_missing(file.name):
                self._keep(key, missing_piece(file))
            else:
                self._failed(key[1], disk_error(error))
        else:
            self._missed_ns.pop(file.name, None)
            self._history.missing.discard(file.name)
            self._keep(key, piece)
        finally:
            self._asked.discard(key)
        self._on_read()

    def _keep(self, key: tuple[str, int], piece: Piece) -> None:
        self._succeeded()
        self._pieces[key] = piece
        while len(self._pieces) > MOST_PIECES:
            self._pieces.popitem(last=False)

    def _is_missing(self, name: str) -> bool:
        """True if the store has said for long enough that it does not have a file; report it once."""
        now_ns = self._clock()
        if now_ns - self._missed_ns.setdefault(name, now_ns) < _MISSING_AFTER_NS:
            return False
        if name not in self._history.missing:
            self._history.missing.add(name)
            self._log.of_clients.error(
                "TOPIC(%s): the store has lost %s; it is passed over", self._name, name
            )
        return True

    def _failed(self, seq: int, error: OSError) -> None:
        reason = error.strerror or str(error)
        if reason != self._history.problem:
            self._log.of_clients.error(
                "TOPIC(%s): failed to read message %d from the store; its channels wait for it - %s",
                self._name,
                seq,
                reason,
            )
        self._history.problem = reason
        self._retry_ns = self._clock() + self._retry_delay_ns
        self._retry_delay_ns = min(2 * self._retry_delay_ns, _LONGEST_RETRY_NS)

    def _succeeded(self) -> None:
        if self._history.problem:
            self._log.of_clients.info("TOPIC(%s): the store answers again", self._name)
        self._history.problem = ""
        self._retry_ns = 0
        self._retry_delay_ns = _FIRST_RETRY_NS
