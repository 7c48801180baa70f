"""/stats of many topics, and latencies from publish to finish."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.nsqd_process import NsqdProcess, wait_until

TOPICS, CHANNELS = 1000, 3


def test_latencies_of_channels_and_topics(make_nsqd):
    nsqd = make_nsqd("--e2e-processing-latency-percentile=1.0,0.5")
    nsqd.create("t", "a", "b")
    nsqd.create("alone")
    with nsqd.consumer("t", "a", 10) as client:
        client.mpub("t", [b"1", b"2", b"3"])
        client.fin(*(client.message() for _ in range(3)))
        client.round_trip()
    of_topic = nsqd.topic_stats("t")
    of_alone = nsqd.topic_stats("alone")
    assert of_topic is not None
    assert of_alone is not None
    latencies = {
        channel["channel_name"]: channel["e2e_processing_latency"] for channel in of_topic["channels"]
    }
    assert nsqd.http("GET", "/config/e2e_processing_latency_percentiles").text == "[1,0.5]"
    assert latencies["b"] == {"count": 0, "percentiles": [{"quantile": q, "value": 0} for q in (1.0, 0.5)]}
    assert of_alone["e2e_processing_latency"] == {"count": 0, "percentiles": None}
    for latency in (latencies["a"], of_topic["e2e_processing_latency"]):
        assert latency["count"] == 3
        # As Go writes numbers.
        assert str([entry["quantile"] for entry in latency["percentiles"]]) == "[1, 0.5]"
        assert all(0 < entry["value"] < 60e9 for entry in latency["percentiles"])
    text = nsqd.http("GET", "/stats?topic=t").text
    assert len(re.findall(r"e2e%: [1-9]\d*\.\d(?:ns|us|ms|s), [1-9]\d*\.\d(?:ns|us|ms|s)\n", text)) == 2
    assert "e2e%: 0.0ns, 0.0ns\n" in text


@pytest.fixture(scope="module")
def large(tmp_path_factory) -> Iterator[NsqdProcess]:
    """An nsqd with many topics."""
    data_path = tmp_path_factory.mktemp("stats") / "nsqd"
    data_path.mkdir()
    channels = [{"name": f"channel{number}", "paused": False} for number in range(CHANNELS)]
    topics = [
        {"name": f"topic{number:04}", "paused": False, "channels": channels} for number in range(TOPICS)
    ]
    (data_path / "nsqd.dat").write_text(json.dumps({"version": "1.3.0", "topics": topics}))
    process = NsqdProcess(data_path).start()
    yield process
    process.destroy()


@pytest.mark.ours
@pytest.mark.parametrize("path", ["/stats?format=json", "/stats", "/metrics"])
def test_messages_flow_while_figures_are_gathered(large, path):
    """Round trips through the same nsqd: in each scrape there have to be several, not one that waits for its end."""
    with large.connect() as client, ThreadPoolExecutor() as pool:
        client.sub("topic0000", "channel0", 1)

        def trips_in_a_scrape():
            asked = pool.submit(large.http, "GET", path)
            for trips in itertools.count():
                if asked.done():
                    assert asked.result().status == 200
                    return trips
                client.pub("topic0000", b"x")
                client.fin(client.message())
            raise AssertionError

        wait_until(lambda: trips_in_a_scrape() > 5)
