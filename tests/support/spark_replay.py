"""spark-replay as a process: an archive of numbered messages into a real nsqd, and what arrived there."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil

from nsqd_py.diskqueue.messages import record_positions
from nsqd_py.diskqueue.records import FILE_HEADER_BYTES, RECORD_HEADER_BYTES
from tests.support.archives import SALT, Message, framed
from tests.support.nsqd_process import NsqdProcess, wait_until
from tests.support.tool_process import ToolProcess

MODULE = "nsq_apps", "spark_replay"
TOPIC, CHANNEL = "orders", "count"
# Java takes seconds to start, and longer where other tests use the processors.
DEADLINE_S = 300.0
PER_RECORD = 100
_BODY_BYTES = 200
_EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"


class Replay(ToolProcess):
    """From `with` to its end. It is never asked whether to start."""

    def __init__(self, nsqd: NsqdProcess, archive: Path, directory: Path, *flags: str) -> None:
        """What it says and its report are written in `directory`."""
        self._report_path = directory / "report.json"
        super().__init__(
            *MODULE,
            str(archive),
            f"--nsqd-tcp-address=127.0.0.1:{nsqd.tcp_port}",
            "--yes",
            f"--report={self._report_path}",
            *flags,
            log_path=directory / "spark_replay.log",
        )

    def end(self) -> int:
        """The exit status, when it has ended by itself."""
        return self._process.wait(DEADLINE_S)

    def kill(self) -> None:
        """With SIGKILL; only what belongs to it in other processes may still end by itself."""
        self._process.kill()
        self._process.wait()

    def report(self) -> dict[str, Any]:
        """Only when it has ended."""
        return json.loads(self._report_path.read_bytes())


def numbered(count: int) -> list[bytes]:
    """Bodies that tell them apart."""
    return [b"%0*d" % (_BODY_BYTES, number) for number in range(count)]


def write_archive(path: Path, count: int) -> Path:
    """One framed file."""
    messages = [Message(body, TOPIC, id=f"{number:016x}") for number, body in enumerate(numbered(count))]
    path.write_bytes(framed([messages[low : low + PER_RECORD] for low in range(0, count, PER_RECORD)]))
    return path


def damage_record(path: Path, number: int) -> int:
    """Changes a byte of it; where in the file it begins."""
    data = bytearray(path.read_bytes())
    position, _ = list(record_positions(bytes(data), FILE_HEADER_BYTES, SALT))[number]
    data[position + RECORD_HEADER_BYTES] ^= 1
    path.write_bytes(data)
    return position


# ---- on the other side


def arrived(nsqd: NsqdProcess) -> int:
    """How many nsqd has taken since it started."""
    stats = nsqd.topic_stats(TOPIC)
    return stats["message_count"] if stats else 0


def wait_for_messages(nsqd: NsqdProcess, replay: ToolProcess, count: int) -> None:
    """Fails when the replay ends before."""

    def have_arrived() -> bool:
        assert psutil.pid_exists(replay.pid) and psutil.Process(replay.pid).status() != psutil.STATUS_ZOMBIE
        return arrived(nsqd) >= count

    wait_until(have_arrived, DEADLINE_S, f"{count} messages")


def copies(nsqd: NsqdProcess, topic: str = TOPIC) -> list[bytes]:
    """All bodies that are there, each as often as it is; they are taken out of it."""
    depth = nsqd.wait_for_channel(topic, CHANNEL)["depth"]
    with nsqd.consumer(topic, CHANNEL, 2500) as client:
        return [message.body for message in client.consume(depth)]


# ---- processes of Spark


def executors(pid: int) -> list[psutil.Process]:
    """Those among the descendants of a process."""
    return [process for process in psutil.Process(pid).children(recursive=True) if _is_executor(process)]


def publishing(found: Sequence[psutil.Process], nsqd: NsqdProcess) -> list[psutil.Process]:
    """Those whose Python processes are connected to nsqd."""
    return [process for process in found if connected(process.children(recursive=True), nsqd)]


def connected(found: Sequence[psutil.Process], nsqd: NsqdProcess) -> list[psutil.Process]:
    """Those that are connected to nsqd."""
    return [process for process in found if _is_connected(process, nsqd)]


def _is_executor(process: psutil.Process) -> bool:
    return _of_living(lambda: _EXECUTOR in process.cmdline())


def _is_connected(process: psutil.Process, nsqd: NsqdProcess) -> bool:
    return _of_living(
        lambda: any(one.raddr and one.raddr[1] == nsqd.tcp_port for one in process.net_connections("tcp"))
    )


def _of_living(ask: Callable[[], bool]) -> bool:
    try:
        return ask()
    except psutil.NoSuchProcess:
        return False
