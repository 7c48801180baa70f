"""The order in which a channel delivers, over real sockets; it holds for Go's nsqd too."""

from __future__ import annotations

import pytest

from nsqd_py.diskqueue.journals.journal import journal_name, read_journal
from tests.support import wire
from tests.support.nsqd_process import wait_until
from tests.support.wire import bodies


def test_a_message_that_timed_out_goes_behind_what_waits(make_nsqd):
    """As ansq's own test_timeout_messages expects it of nsqd."""
    nsqd = make_nsqd("--msg-timeout=1500ms")
    with nsqd.consumer("t", "c", 1) as client:
        client.mpub("t", [b"m1", b"m2", b"m3"])
        received = [client.message()]
        while len(received) < 4:
            received.append(client.message())  # Go looks for time-outs in a new channel only after up to 5 s
            if len(received) < 4:
                client.fin(received[-1])
        assert [(message.body, message.attempts) for message in received] == [
            (b"m1", 1),
            (b"m2", 1),
            (b"m3", 1),
            (b"m1", 2),
        ]


def test_poison_messages_do_not_keep_good_ones_waiting(nsqd):
    """Five messages are requeued at once each time; the twenty behind them come after one round."""
    poison, good = [b"poison %d" % i for i in range(5)], [b"good %02d" % i for i in range(20)]
    with nsqd.consumer("t", "c", 5) as client:
        client.mpub("t", poison + good)
        seen = []
        deliveries = 0
        while len(seen) < len(good) and deliveries < 200:
            message = client.message()
            deliveries += 1
            if message.body in poison:
                client.send(wire.req(message.id, 0))
            else:
                seen.append(message.body)
                client.fin(message)
        assert sorted(seen) == good
        assert deliveries <= 40  # Go needs 26


def test_what_came_due_goes_behind_what_waits(nsqd):
    with nsqd.consumer("t", "c") as client:
        client.mpub("t", [b"m1", b"m2"])
        client.dpub("t", 100, b"late")
        nsqd.wait_for_channel("t", "c", depth=3, deferred_count=0)
        client.send(wire.rdy(1))
        assert bodies(client.consume(3)) == [b"m1", b"m2", b"late"]


def test_what_is_published_later_goes_behind_what_was_requeued(nsqd):
    with nsqd.consumer("t", "c", 1) as client:
        client.mpub("t", [b"m1", b"m2"])
        first = client.message()
        client.send(wire.rdy(0), wire.req(first.id, 0))
        nsqd.wait_for_channel("t", "c", depth=2, in_flight_count=0)
        client.mpub("t", [b"m3"])
        client.send(wire.rdy(1))
        assert bodies(client.consume(3)) == [b"m2", b"m1", b"m3"]


@pytest.mark.ours
@pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed"])
def test_the_order_survives_a_restart(make_nsqd, is_killed):
    nsqd = make_nsqd()
    with nsqd.consumer("t", "c", 2) as client:
        client.mpub("t", [b"m1", b"m2", b"m3"])
        first, second = client.messages(2)
        client.send(wire.rdy(0), wire.req(second.id, 0))
        nsqd.wait_for_channel("t", "c", depth=2)
        client.mpub("t", [b"m4"])
        client.send(wire.req(first.id, 0))
        nsqd.wait_for_channel("t", "c", depth=4)
        client.mpub("t", [b"m5"])
        journal = nsqd.data_path / journal_name("t", "c")
        waiting = lambda: read_journal(journal.read_bytes()).saved.waiting.by_number()  # noqa: E731 - read each time
        wait_until(lambda: len(waiting()) == 2, what="both to be in the journal")
    if is_killed:
        nsqd.kill()
    else:
        nsqd.stop()
    nsqd.start()
    with nsqd.consumer("t", "c", 1) as client:
        assert bodies(client.consume(5)) == [b"m3", b"m2", b"m4", b"m1", b"m5"]
