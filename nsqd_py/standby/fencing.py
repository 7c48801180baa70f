"""Keeps an old primary from serving after its standby was promoted.

A promoted nsqd tells its old primary its newer epoch, until it gets the answer that the other one does not serve. An
nsqd with `--accept-standbys` whose logs the sender continues gives way for good: it becomes a standby of the sender.
Both prove to each other that they belong to one group, so that no one else can fence an nsqd.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import gevent

from nsqd_py.errors import Invalid
from nsqd_py.standby.follower import ask, sentence
from nsqd_py.standby.membership import FENCE
from nsqd_py.standby.messages import Offer, OfferedLog

if TYPE_CHECKING:
    from nsqd_py.broker.broker import Broker
    from nsqd_py.options import NsqdOptions

# The time in which an old primary that came back can serve.
_PAUSE_S = 1.0


class Fencer:
    """Fences the nsqd at `options.standby_of`; `address` is where that one can follow."""

    def __init__(self, broker: Broker, options: NsqdOptions, address: Callable[[], str]) -> None:
        self._broker = broker
        self._options = options
        self._address = address
        self._greenlet: Any = None

    def start(self) -> None:
        self._greenlet = gevent.spawn(self._run)

    def stop(self) -> None:
        """Blocks this greenlet."""
        if self._greenlet is not None:
            self._greenlet.kill()

    def _run(self) -> None:
        log, place = self._broker.log, self._options.standby_of
        reported = ""
        while True:
            try:
                ask(self._options, FENCE, self._offer())
            except Exception as error:  # noqa: BLE001 - whatever it answers, this must go on
                if repr(error) != reported:
                    log.warning("STANDBY: cannot fence the old primary %s - %s; trying again", place, sentence(error))
                    reported = repr(error)
            else:
                log.warning("STANDBY: the old primary %s is fenced: it does not serve", place)
                return
            gevent.sleep(_PAUSE_S)

    def _offer(self) -> Offer:
        logs = {topic.name: OfferedLog(topic.log.epochs) for topic in self._broker.topics.values() if topic.log is not None}
        return Offer(self._broker.epoch, "", logs, self._address())


def check_fence(broker: Broker, offer: Offer) -> None:
    """Raise Invalid unless the sender of this offer was promoted after this nsqd, and continues one of its logs."""
    if offer.epoch <= broker.epoch:
        raise Invalid(f"cannot STANDBY: your epoch {offer.epoch} is not newer than mine, {broker.epoch}")
    for name, offered in offer.logs.items():
        topic = broker.topics.get(name)
        mine = topic.log.epochs if topic is not None and topic.log is not None else ()
        if mine and mine[-1] in offered.epochs[:-1]:
            return
    raise Invalid("cannot STANDBY: none of your logs continues one of mine")
