"""The pytest plugin, in sessions of pytest that use it as a project would."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]

TESTS = """
def test_one(nsqd_server, nsqd_topic):
    nsqd_server.publish(nsqd_topic, "hello")
    nsqd_server.wait_for_depth(nsqd_topic, 1)
    print("topic", nsqd_topic, "at", nsqd_server.tcp_address)

def test_other(nsqd_server, nsqd_topic):
    assert nsqd_server.stats()["topics"] == []
    print("topic", nsqd_topic, "at", nsqd_server.tcp_address)

def test_cluster(nsqd_cluster):
    assert len(nsqd_cluster.nsqds) == 2 and nsqd_cluster.lookupd_http_address
"""

FAILING = """
def test_wrong(nsqd_server, nsqd_topic):
    nsqd_server.publish(nsqd_topic, "one", "two")
    nsqd_server.post(f"/channel/create?topic={nsqd_topic}&channel=work")
    nsqd_server.wait_for_depth(nsqd_topic, 2, "work")
    assert False
"""


def test_a_session_shares_one_nsqd_and_each_test_has_a_topic(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TESTS)
    result = pytester.runpytest_subprocess("-s", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=3)
    reported = [line.split() for line in result.outlines if "topic test_" in line]
    topics, addresses = {line[-3] for line in reported}, {line[-1] for line in reported}
    assert len(topics) == 2 and len(addresses) == 1


def test_a_failed_test_shows_depths_and_the_log(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(FAILING)
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(failed=1)
    result.stdout.re_match_lines(
        [
            r"-+ nsqd 127\.0\.0\.1:\d+ -+",
            r" +\[test_wrong-\w+ *\] depth: 0 .*msgs: 2 .*",
            r" +\[work +\] depth: 2 .*inflt: 0 +def: 0 .*",
            r"Producers: None",
            r"Last lines of its log:",
            r"\[nsqd\] .*INFO: .*",
        ]
    )
