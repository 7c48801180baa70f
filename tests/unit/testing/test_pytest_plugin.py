"""The pytest plugin, in sessions of pytest that use it as a project would."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]

TESTS = """
def test_one(nsqd, nsq_topic):
    nsqd.publish(nsq_topic, "hello")
    nsqd.wait_for_depth(nsq_topic, 1)
    print("topic", nsq_topic, "at", nsqd.tcp_address)

def test_other(nsqd, nsq_topic):
    assert nsqd.stats()["topics"] == []
    print("topic", nsq_topic, "at", nsqd.tcp_address)

def test_cluster(nsq_cluster):
    assert len(nsq_cluster.nsqds) == 2 and nsq_cluster.lookupd_http_address
"""

FAILING = """
def test_wrong(nsqd, nsq_topic):
    nsqd.publish(nsq_topic, "one", "two")
    nsqd.post(f"/channel/create?topic={nsq_topic}&channel=work")
    nsqd.wait_for_depth(nsq_topic, 2, "work")
    assert False
"""


def test_a_session_shares_one_nsqd_and_each_test_has_a_topic(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TESTS)
    result = pytester.runpytest_subprocess("-s", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=3)
    told = [line.split() for line in result.outlines if "topic test_" in line]
    topics, addresses = {line[-3] for line in told}, {line[-1] for line in told}
    assert len(topics) == 2 and len(addresses) == 1


def test_a_failed_test_shows_depths_and_the_log(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(FAILING)
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(failed=1)
    result.stdout.re_match_lines(
        [
            r"-+ nsqd 127\.0\.0\.1:\d+ -+",
            r"topic test_wrong-\w+: depth 0, messages 2",
            r"  channel work: depth 2, in flight 0, deferred 0, .*clients 0",
            r"Last lines of its log:",
            r"\[nsqd\] .*INFO: .*",
        ]
    )


def test_fixtures_of_the_same_name_in_a_project_are_left_alone(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("import pytest\n@pytest.fixture\ndef nsqd():\n    return 'mine'\n")
    pytester.makepyfile("def test_it(nsqd, nsq_topic):\n    assert nsqd == 'other'\n")
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(failed=1)
    result.stdout.no_fnmatch_line("*Last lines of its log*")
