"""What the files beside a file say about it: whether nsqd still writes to it, and what of it was consumed."""

from __future__ import annotations

from dataclasses import dataclass

from nsq_spark.archive.errors import ArchiveError
from nsq_spark.archive.formats import name_without_compression, parse_go_queue_name
from nsq_spark.archive.storage import Storage, directory_of, name_of
from nsqd_py.diskqueue.files import parse_log_file_name
from nsqd_py.diskqueue.go_files import GO_POSITION_SUFFIX, GoPosition, parse_go_position


@dataclass(frozen=True, slots=True)
class GoQueueFile:
    """A file of Go's disk queue.

    read_position  where what is unread begins; None: nothing is. 0 where nobody knows
    settled_bytes  nsqd knew that these were written
    """

    topic: str
    channel: str | None
    is_live: bool = False
    read_position: int | None = 0
    settled_bytes: int = 0


class Companions:
    """Looks at each directory once."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._last_logs: dict[str, dict[str, int]] = {}
        self._last_queues: dict[str, dict[str, int]] = {}

    def topic_log(self, path: str) -> tuple[str, bool]:
        """The topic by its name, and whether it is the topic's last file. ("", False) for a name of another kind."""
        parsed = parse_log_file_name(name_without_compression(name_of(path)))
        if parsed is None:
            return "", False
        topic, seq = parsed
        return topic, seq >= self._last_log(directory_of(path)).get(topic, seq)

    def _last_log(self, directory: str) -> dict[str, int]:
        if directory not in self._last_logs:
            last: dict[str, int] = {}
            for topic, seq in filter(None, map(parse_log_file_name, self._storage.names(directory))):
                last[topic] = max(seq, last.get(topic, 0))
            self._last_logs[directory] = last
        return self._last_logs[directory]

    def go_queue(self, path: str) -> GoQueueFile:
        name = name_without_compression(name_of(path))
        parsed = parse_go_queue_name(name)
        if parsed is None:
            return GoQueueFile("", None)
        topic, channel, number = parsed
        queue = name.partition(".diskqueue.")[0]
        position = self._go_position(f"{directory_of(path)}/{queue}{GO_POSITION_SUFFIX}")
        if position is None:
            return GoQueueFile(topic, channel, number >= self._last_queue(directory_of(path)).get(queue, number))
        read, write = position.read_number, position.write_number
        return GoQueueFile(
            topic,
            channel,
            is_live=number >= write,
            read_position=None if number < read else position.read_offset if number == read else 0,
            settled_bytes=position.write_offset if number == write else 0,
        )

    def _go_position(self, path: str) -> GoPosition | None:
        try:
            with self._storage.open(path) as file:
                return parse_go_position(file.read_at(0, file.size_bytes))
        except (ArchiveError, OSError):
            return None

    def _last_queue(self, directory: str) -> dict[str, int]:
        if directory not in self._last_queues:
            last: dict[str, int] = {}
            for name in self._storage.names(directory):
                parsed = parse_go_queue_name(name)
                if parsed is not None:
                    queue = name.partition(".diskqueue.")[0]
                    last[queue] = max(parsed[2], last.get(queue, 0))
            self._last_queues[directory] = last
        return self._last_queues[directory]
