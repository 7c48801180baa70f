"""One nsqd of a consumer, from the subscription to the last answer, over all its connections. No I/O."""

from __future__ import annotations

from collections.abc import Callable

from nsqd_py.client.consuming.flow import Clock
from nsqd_py.client.consuming.lane import Lane, LaneLimits
from nsqd_py.client.consuming.subscription import Subscription
from nsqd_py.client.errors import ConnectionLost, NsqdSaid
from nsqd_py.client.message import MessageBatch
from nsqd_py.client.options import ClientLog, ClientOptions
from nsqd_py.client.session import Negotiated
from nsqd_py.protocol import outgoing
from nsqd_py.protocol.incoming import Messages
from nsqd_py.runtime.outages import Backoff, OutageLog

_FIRST_REDIAL_S = 0.1
_LASTED_S = 2.0  # a connection that lasted this long has not failed: dial again soon
_CLOSE_WAIT = b"CLOSE_WAIT"


class Membership:
    """The state of one nsqd, and the reactions to what it sends.

    lane        set while the nsqd has our subscription
    is_leaving  True if no more messages are requested from it
    """

    def __init__(
        self,
        address: str,
        subscription: Subscription,
        options: ClientOptions,
        log: ClientLog,
        clock: Clock,
        chance: Callable[[], float],
    ) -> None:
        self.address = address
        self.lane: Lane | None = None
        self.is_leaving = False
        self._subscription = subscription
        self._log = log
        self._now_s = clock
        self._dialled_s = clock()
        self._redial = Backoff(_FIRST_REDIAL_S, max(_FIRST_REDIAL_S, options.lookupd_poll_interval_s), chance)
        self._outage = OutageLog(log, clock)
        self._nsqd_is_done = False

    # ---- dialling

    def dials(self) -> None:
        self._dialled_s = self._now_s()

    def failed(self, error: object) -> None:
        """Note a failure to connect. It is logged once a minute, since dialling repeats."""
        self._outage.report("%s", error)
        self._redial.failed(self._now_s())

    @property
    def redial_wait_s(self) -> float:
        """Return the time until it may be dialled again."""
        return self._redial.wait_s(self._now_s())

    # ---- what nsqd says

    @property
    def subscribe(self) -> bytes:
        """Return the first command."""
        return self._subscription.subscribe

    def came(self, messages: Messages) -> MessageBatch | None:
        """Return the batch of these messages; None if nsqd sent them without a subscription.

        Raises ConnectionLost if nsqd has sent more messages than the client asked for: they would fill its memory.
        """
        lane = self.lane
        if lane is None:
            return None
        if not lane.expects(len(messages)):
            raise ConnectionLost(self.address, f"nsqd sent more messages than RDY {lane.most_rdy} allows")
        return self._subscription.received(lane, messages)

    def answered(self, data: bytes, negotiated: Negotiated) -> None:
        """Handle a response: OK confirms the subscription, CLOSE_WAIT means that no more messages come."""
        if data == _CLOSE_WAIT:
            self._nsqd_is_done = True
        elif self.lane is None and not self.is_leaving:
            self._outage.end("%s: connected again", self.address)
            self._log.info("%s: subscribed to %s", self.address, self._subscription)
            limits = lane_limits(negotiated)
            self._warn_of_limit(limits.max_rdy, self._subscription.flow.max_in_flight)
            self.lane = self._subscription.opened(self.address, limits)

    def _warn_of_limit(self, most: int, wanted: int) -> None:
        if most < wanted:
            self._log.warning("%s: gives %d messages at a time (--max-rdy-count), not %d", self.address, most, wanted)

    def refused(self, error: NsqdSaid) -> None:
        self._subscription.refused(error.code)
        if error.is_fatal:
            self._outage.report("%s", error)
        else:
            self._log.debug("%s", error)

    def lost(self, reason: str) -> None:
        """Note that the connection has ended."""
        lane, self.lane = self.lane, None
        if lane is not None:
            self._subscription.closed(lane)
        if self.is_leaving:
            return
        self._outage.report("%s: connection lost: %s", self.address, reason)
        if self._now_s() - self._dialled_s > _LASTED_S:
            self._redial.reset()
        self._redial.failed(self._now_s())

    # ---- the end

    def leave(self) -> None:
        """Request no more messages. Those in flight must still be answered."""
        if not self.is_leaving and self.lane is not None:
            self.lane.say(outgoing.CLS)
        self.is_leaving = True

    @property
    def is_drained(self) -> bool:
        """True if no message comes any more, none is in flight, and all answers were taken to be sent."""
        lane = self.lane
        return lane is None or (self._nsqd_is_done and not lane.touching and not lane.has_output)


def lane_limits(negotiated: Negotiated) -> LaneLimits:
    """Return the limits of nsqd, with the protocol's defaults for those that it does not report."""
    default = Negotiated()
    return LaneLimits(
        negotiated.max_rdy_count or default.max_rdy_count,
        negotiated.msg_timeout_s or default.msg_timeout_s,
        negotiated.max_msg_timeout_s or default.max_msg_timeout_s,
    )
