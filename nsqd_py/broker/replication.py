"""What the broker tells of its changes, so that standbys get them. Without standbys, nothing happens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from nsqd_py.errors import HttpError, Invalid

if TYPE_CHECKING:
    from nsqd_py.broker.journal_writing import Saved
    from nsqd_py.queue.channel import Channel
    from nsqd_py.queue.topic import Topic


class Replication(Protocol):
    """The standbys of this nsqd, or its primary. No method blocks."""

    def topic_made(self, topic: Topic) -> None:
        """A topic was created."""

    def topic_deleted(self, name: str) -> None:
        """A topic was deleted."""

    def channel_changed(self, topic: Topic, channel: Channel) -> None:
        """A channel was created, moved, emptied or deleted; its journal says so."""

    def channels_saved(self, saved: Sequence[Saved]) -> None:
        """The journals of these channels were written."""

    def position_written(self, topic: Topic) -> None:
        """The position of a topic that holds its messages back was written."""

    def metadata_written(self) -> None:
        """`nsqd.dat` was written."""

    def member(self, client: Any, body: bytes) -> None:
        """Answer this connection's MEMBER, a step of the proof that it belongs to the group. Raises ClientError."""

    def attach(self, client: Any, body: bytes) -> None:
        """Let this connection follow; `body` is the document of STANDBY. Raises ClientError."""

    def acknowledge(self, client: Any, number: int) -> None:
        """The standby behind this connection has written a round."""

    def detach(self, client: Any) -> None:
        """The connection has ended."""

    def notice(self) -> str | None:
        """Return what an operator should know of the standbys, for /ping; None if all is well."""

    def promote(self) -> None:
        """Begin to make a primary of a standby. Raises HttpError if this is none, or if its copy is not complete."""

    def figures(self) -> dict[str, Any]:
        """Return what /stats shows beside the topics; empty without standbys."""

    def lags(self) -> list[tuple[str, dict[str, int]]]:
        """Return (address, `lag_messages`, `lag_bytes` and `lag_ms`) of each standby, or of the primary."""

    def close(self) -> None:
        """End all streams."""


class NoReplication:
    """The interface where no standby may follow."""

    def topic_made(self, topic: Topic) -> None:
        pass

    def topic_deleted(self, name: str) -> None:
        pass

    def channel_changed(self, topic: Topic, channel: Channel) -> None:
        pass

    def channels_saved(self, saved: Sequence[Saved]) -> None:
        pass

    def position_written(self, topic: Topic) -> None:
        pass

    def metadata_written(self) -> None:
        pass

    def member(self, client: Any, body: bytes) -> None:
        raise Invalid("cannot STANDBY: --accept-standbys is off")

    attach = member

    def acknowledge(self, client: Any, number: int) -> None:
        pass

    def detach(self, client: Any) -> None:
        pass

    def notice(self) -> str | None:
        return None

    def promote(self) -> None:
        raise HttpError(409, "NOT_A_STANDBY")

    def figures(self) -> dict[str, Any]:
        return {}

    def lags(self) -> list[tuple[str, dict[str, int]]]:
        return []

    def close(self) -> None:
        pass
