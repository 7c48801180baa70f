"""The node id of an nsqd, which makes message ids unique in a cluster."""

from __future__ import annotations

import pytest

from nsqd_py.protocol.message_ids import NODE_BITS, SEQUENCE_BITS
from tests.support.nsqd_process import NsqdProcess
from tests.support.tool_process import publish

pytestmark = pytest.mark.ours


def node_id(nsqd: NsqdProcess) -> int:
    """The node id in the id of a new message."""
    nsqd.create("orders", "c")
    publish(nsqd, "orders", b"x")
    with nsqd.consumer("orders", "c", 1) as client:
        (message,) = client.consume(1)
    return int(message.id, 16) >> SEQUENCE_BITS & (1 << NODE_BITS) - 1


def test_data_paths_on_one_host_have_different_node_ids(make_nsqd):
    nsqds = [make_nsqd() for _ in range(3)]
    first = [node_id(nsqd) for nsqd in nsqds]
    assert len(set(first)) > 1  # three equal ones come about once in a million runs
    for nsqd in nsqds:
        nsqd.restart(clean=False)
    assert [node_id(nsqd) for nsqd in nsqds] == first


def test_a_node_id_that_is_given_is_that_of_the_messages(make_nsqd):
    assert [node_id(make_nsqd(f"--node-id={number}")) for number in (0, 1023)] == [0, 1023]
