"""An archive and the log of nsqd, as one source of Spark: what writes to both, and what reads them. Needs PySpark."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from nsq_spark.source.live import LiveBatchReader, LiveReader
from nsq_spark.source.live_options import live_options
from tests.support.nsqd_process import NsqdProcess, wait_until
from tests.support.tool_process import ToolProcess
from tests.support.wire import mpub_body

TOPIC, CHANNEL = "orders", "archive"
ALL = ReadAllAvailable()
COLUMNS = ("body", "id", "nsqd")
# With these, nsqd soon drops what nsq-to-file has finished, but not the last 60 messages.
MOST_BYTES, FILE_BYTES, MESSAGE_BYTES = 65536, 16384, 1000
SMALL_FILES = (f"--max-bytes-per-file={FILE_BYTES}", f"--retention-bytes={MOST_BYTES}")


def address(nsqd: NsqdProcess) -> str:
    return f"127.0.0.1:{nsqd.http_port}"


def publish(nsqd: NsqdProcess, numbers: range, topic: str = TOPIC) -> None:
    for first in range(numbers.start, numbers.stop, 10):
        some = [b"%d".ljust(MESSAGE_BYTES) % number for number in range(first, min(first + 10, numbers.stop))]
        assert nsqd.post(f"/mpub?topic={topic}&binary=true", mpub_body(some)).body == b"OK"


class Place:
    """An archive, and the tools that write to it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory / "archive"
        self.directory.mkdir()
        self._log_path = directory / "nsq_to_file.log"

    @contextmanager
    def archiving(
        self, nsqd: NsqdProcess, *flags: str, topic: str = TOPIC, host: str = "127.0.0.1"
    ) -> Iterator[None]:
        """Archive until the end of the context, and finish the file there."""
        nsqd.create(topic, CHANNEL)
        source = (f"--nsqd-tcp-address={host}:{nsqd.tcp_port}", f"--topic={topic}", f"--channel={CHANNEL}")
        options = (f"--output-dir={self.directory}", "--sync-interval=50ms", "--format=jsonl", *flags)
        with ToolProcess("nsq_apps", "nsq_to_file", *source, *options, log_path=self._log_path) as tool:
            yield
            wait_until(lambda: is_finished(nsqd, topic), what="everything to be archived")
            assert tool.stop() == 0
        settle(nsqd, topic)

    def archive(self, nsqd: NsqdProcess, *flags: str, topic: str = TOPIC, host: str = "127.0.0.1") -> None:
        """Archive what there is."""
        with self.archiving(nsqd, *flags, topic=topic, host=host):
            pass

    def files(self) -> list[Path]:
        return sorted(path for path in self.directory.iterdir() if path.name.startswith(TOPIC))

    def options(self, *nsqds: NsqdProcess, **more: str) -> dict[str, str]:
        nsqd = {"nsqd": ",".join(map(address, nsqds))} if nsqds else {}
        topic = {} if "topicPattern" in more else {"topic": TOPIC}
        return {"path": str(self.directory), "giveUpAfter": "300ms", **nsqd, **topic, **more}

    def reader(self, *nsqds: NsqdProcess, **more: str) -> LiveReader:
        return LiveReader(live_options(self.options(*nsqds, **more), 0), COLUMNS)

    def table(self, *nsqds: NsqdProcess, **more: str) -> list[int]:
        return sorted(number for number, _ in self.rows(*nsqds, **more))

    def rows(self, *nsqds: NsqdProcess, **more: str) -> list[tuple[int, str]]:
        """The numbers of messages, and their ids."""
        one = LiveBatchReader(live_options(self.options(*nsqds, **more), 0), COLUMNS)
        batches = [batch for part in one.partitions() for batch in one.read(part)]
        return [
            (int(body), message_id)
            for batch in batches
            for body, message_id in zip(*(column.to_pylist() for column in batch.columns[:2]), strict=True)
        ]


def is_finished(nsqd: NsqdProcess, topic: str = TOPIC) -> bool:
    channel = nsqd.channel_stats(topic, CHANNEL)
    return channel is not None and channel["depth"] == channel["in_flight_count"] == 0


def drain(nsqd: NsqdProcess) -> None:
    wait_until(lambda: is_finished(nsqd), what="everything to be archived")


@contextmanager
def two_that_share(nsqd: NsqdProcess, place: Place) -> Iterator[list[ToolProcess]]:
    """Two nsq-to-files on a channel, each of which gets a part of its messages."""
    nsqd.create(TOPIC, CHANNEL)
    nsqd.post(f"/channel/pause?topic={TOPIC}&channel={CHANNEL}")
    flags = (
        f"--nsqd-tcp-address=127.0.0.1:{nsqd.tcp_port}",
        f"--topic={TOPIC}",
        f"--channel={CHANNEL}",
        f"--output-dir={place.directory}",
        "--format=jsonl",
        "--max-in-flight=5",  # so both get some of each 10 that are published together
        "--sync-interval=50ms",
        "--skip-empty-files",
    )
    with ExitStack() as stack:
        tools = [
            stack.enter_context(
                ToolProcess(
                    "nsq_apps",
                    "nsq_to_file",
                    *flags,
                    f"--host-identifier={name}",
                    log_path=place.directory.parent / f"{name}.log",
                )
            )
            for name in ("first", "second")
        ]

        def have_subscribed() -> bool:
            channel = nsqd.channel_stats(TOPIC, CHANNEL)
            return channel is not None and channel["client_count"] == len(tools)

        wait_until(have_subscribed, what="both to subscribe")
        nsqd.post(f"/channel/unpause?topic={TOPIC}&channel={CHANNEL}")
        yield tools


def settle(nsqd: NsqdProcess, topic: str = TOPIC) -> None:
    """Wait until nsqd drops no more."""

    def is_settled() -> bool:
        log = nsqd.http("GET", f"/topic/log?topic={quote(topic)}").json()
        return bool(log["retention_ns"]) or sum(file["bytes"] for file in log["files"][1:]) < MOST_BYTES

    wait_until(is_settled, what="nsqd to drop what is archived")


def earliest(nsqd: NsqdProcess) -> int:
    return int(nsqd.http("GET", f"/topic/log?topic={TOPIC}").json()["earliest_seq"])


def wait_until_dropped(nsqd: NsqdProcess, count: int = 1) -> None:
    wait_until(lambda: earliest(nsqd) >= count, what="nsqd to drop what is archived")


def numbers(one: Any, plan: Callable[[], list[Any]]) -> list[int]:
    return sorted(
        int(body) for part in plan() for batch in one.read(part) for body in batch.column(0).to_pylist()
    )


def followed(
    one: LiveReader, start: dict[str, Any], most: int | None = None
) -> tuple[list[int], dict[str, Any]]:
    """All messages that there are now, and where they end."""
    found: list[int] = []
    while (end := one.latestOffset(start, ALL if most is None else ReadMaxRows(most))) != start:
        batch = numbers(one, partial(one.partitions, start, end))
        assert most is None or len(batch) <= most
        found += batch
        start = json.loads(json.dumps(end))
    return found, start
