"""Moves dead letters to the topics that get them again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Any

from nsqadmin_py.messages.log_search import body_of
from nsqadmin_py.refusals import NotThere
from nsqadmin_py.web.answers import reason_of, upstream_failed
from nsqd_py.cluster.admin_client import UpstreamError
from nsqd_py.cluster.upstream import Answers, Upstream, ask_all
from nsqd_py.cluster.values import Statistics, rows_in, text_in

# Messages of one nsqd that are requeued at the same time, and the time for requeueing all.
_MOVED_AT_ONCE = 50
_REQUEUE_S = 30.0


@dataclass(frozen=True, slots=True)
class Requeueing:
    """Moves messages that wait in a channel to the topic `target`, on the nsqd that has each.

    source  the names of the topic and the channel
    """

    upstream: Upstream
    source: dict[str, str]
    target: str

    def all(self, addresses: list[str], limit: int) -> Statistics:
        """Publish at most `limit` messages, and finish them. It ends after _REQUEUE_S.

        If nsqadmin ends in between, up to _MOVED_AT_ONCE messages of each nsqd may come twice; none is lost.
        Raises RequestRefused if none was moved and an nsqd failed.
        """
        end_s = monotonic() + _REQUEUE_S
        moved = 0
        errors = []
        for address in addresses:
            try:
                self.upstream.post(address, "/channel/create", self.source)  # a new one gets what waits
                while moved < limit and monotonic() < end_s:
                    done = self._move_some(address, min(limit - moved, _MOVED_AT_ONCE))
                    moved += len(done.good)
                    if done.errors:
                        raise done.errors[0]
                    if not done.good:
                        break
            except UpstreamError as error:
                errors.append(f"{address}: {reason_of(error)}")
        if errors and not moved:
            raise upstream_failed("; ".join(errors))
        return {"errors": errors, "requeued": moved}

    def one(self, node: str, seq: int, message_id: str) -> Statistics:
        """Publish a message, then finish it. Raises RequestRefused and UpstreamError."""
        for row in self._waiting(node, {"seq": str(seq)}):
            if row.get("id") == message_id and row.get("seq") == seq:
                self._move(node, row)
                return {"node": node}
        raise NotThere("MESSAGE_NOT_QUEUED")

    def _waiting(self, node: str, query: dict[str, str]) -> list[Mapping[str, Any]]:
        return rows_in(self.upstream.get(node, "/channel/peek", self.source | query), "messages")

    def _move_some(self, node: str, count: int) -> Answers[None]:
        waiting = self._waiting(node, {"n": str(count)})
        rows = {str(row.get("seq")): row for row in waiting}
        return ask_all(rows, lambda seq: self._move(node, rows[seq]))

    def _move(self, node: str, row: Mapping[str, Any]) -> None:
        """Publish a message, and finish it. If nsqadmin ends in between, it may come twice.

        Raises UpstreamError.
        """
        self.upstream.post(node, "/pub", {"topic": self.target}, body_of(row))
        names = {"seq": str(row.get("seq")), "id": text_in(row, "id")}
        try:
            self.upstream.post(node, "/channel/finish", self.source | names)
        except UpstreamError as error:
            if error.message != "MESSAGE_NOT_QUEUED":  # then a consumer of the channel has received it too
                stays = f"it stays in {self.source['topic']}: {reason_of(error)}"
                raise UpstreamError(f"{self.target} has the message, but {stays}", node) from error
