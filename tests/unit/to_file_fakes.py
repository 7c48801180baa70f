"""What stands in for nsqd, and for the settings, in the tests of nsq-to-file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from nsq_tools.to_file.archive import Plan, Rotation
from nsq_tools.to_file.formats import FORMATS
from nsqd_py.client.message import Message
from nsqd_py.stores.compression import CODECS


class FakeBatch:
    """Messages with timestamps from 1000 on, and the answers that were given."""

    def __init__(
        self, *bodies: bytes, nsqd: str = "127.0.0.1:4150", first_id: int = 0, http_port: int = 0
    ) -> None:
        self.topic, self.channel, self.nsqd, self.http_port = "topic", "channel", nsqd, http_port
        self.connection: object = None
        self.bodies = list(bodies)
        self.ids = [b"%016x" % (first_id + number) for number in range(len(bodies))]
        self.timestamps_ns = [1000 + number for number in range(len(bodies))]
        self.attempts = [1] * len(bodies)
        self.finished: list[bytes] = []
        self.requeued: list[bytes] = []

    def __len__(self) -> int:
        return len(self.ids)

    def messages(self) -> list[Message]:
        return list(
            map(Message, self.ids, self.bodies, self.timestamps_ns, self.attempts, [self] * len(self))
        )  # type: ignore[list-item]

    def finish(self) -> None:
        self.finish_some(self.ids)

    def finish_one(self, message_id: bytes) -> None:
        self.finished.append(message_id)

    def finish_some(self, ids: Sequence[bytes]) -> None:
        self.finished += ids

    def requeue(self, delay_s: float | None = None, ids: Sequence[bytes] | None = None) -> None:
        self.requeued += self.ids if ids is None else ids


def plan_of(output: Path, name: str, form: str, codec: str, **changes: Any) -> Plan:
    """The settings of files that are written in `output`, with their name up to the suffix."""
    kind = FORMATS[form]
    plan = Plan(
        topic="topic",
        channel="channel",
        template=f"{name}{kind.suffix}{CODECS[codec].suffix if kind.is_appendable else ''}",
        datetime_format="",
        work_dir=output,
        output_dir=output,
        form=kind,
        codec=CODECS[codec],
        level=3,
        rotation=Rotation(),
        is_shared=False,
        skips_empty=False,
    )
    return replace(plan, **changes)
