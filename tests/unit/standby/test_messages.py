"""What a primary and its standby say to each other: what was encoded is decoded, and nothing else is accepted."""

from __future__ import annotations

from nsqd_py.diskqueue.ranges import Epoch
from nsqd_py.standby.messages import Offer, OfferedFile, OfferedLog, TopicListing, decode_offer, encode_offer

FILES = TopicListing("t", (Epoch(100, 0), Epoch(200, 50)), 60, {"t.00000000000000000000.log": 0}, ["t:c.cursor"])
OFFER = Offer(200, "b:4151", {"t": OfferedLog(FILES.epochs, {"t.00000000000000000000.log": OfferedFile(7, 99, 3)})})


def test_logs_that_do_not_fit_are_left_out() -> None:
    assert decode_offer(encode_offer(OFFER, 150)) == Offer(200, "b:4151", {})
