"""nsqd's HTTP API, as far as a load needs it."""

import http.client
import json
import time
from collections.abc import Callable
from typing import Any

from bench.run import LoadError
from bench.wire import CHANNEL, TOPIC

Stats = dict[str, Any]


class Admin:
    def __init__(self, http_port: int) -> None:
        self._http_port = http_port

    def ping(self) -> bool:
        try:
            return self._request("GET", "/ping") == b"OK"
        except LoadError:
            return False

    def version(self) -> str:
        return str(json.loads(self._request("GET", "/info"))["version"])

    def stats(self) -> Stats:
        return dict(json.loads(self._request("GET", "/stats?format=json")))

    def create(self, *channels: str) -> None:
        """The topic, and these channels of it."""
        self._request("POST", f"/topic/create?topic={TOPIC}")
        for channel in channels or (CHANNEL,):
            self._request("POST", f"/channel/create?topic={TOPIC}&channel={channel}")

    def topic(self) -> Stats:
        """The topic's entry in /stats; raises LoadError when there is none."""
        topics = json.loads(self._request("GET", f"/stats?format=json&topic={TOPIC}"))["topics"]
        if not topics:
            raise LoadError(f"/stats has no topic {TOPIC}")
        return dict(topics[0])

    def wait_for(self, met: Callable[[Stats], bool], *, within_s: float, every_s: float = 0.02) -> Stats:
        """The first topic stats that meet the condition; raises LoadError after `within_s`."""
        deadline_s = time.monotonic() + within_s
        while not met(stats := self.topic()):
            if time.monotonic() > deadline_s:
                raise LoadError(f"not reached in {within_s:g} s: {_summary(stats)}")
            time.sleep(every_s)
        return stats

    def _request(self, method: str, path: str) -> bytes:
        connection = http.client.HTTPConnection("127.0.0.1", self._http_port, timeout=30)
        try:
            connection.request(method, path)
            response = connection.getresponse()
            body = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise LoadError(f"{method} {path}: {error}") from error
        finally:
            connection.close()
        if response.status != 200:
            raise LoadError(f"{method} {path}: {response.status} {body[:200]!r}")
        return body


def channels_hold(messages: int) -> Callable[[Stats], bool]:
    """Every channel of the topic was given this many messages, and none of them is taken yet."""

    def met(topic: Stats) -> bool:
        channels = topic["channels"]
        return all(c["message_count"] == messages == c["depth"] for c in channels) and bool(channels)

    return met


def is_drained(topic: Stats) -> bool:
    """Nothing is queued, in flight or deferred."""
    return topic["depth"] == 0 and all(
        c["depth"] == c["in_flight_count"] == c["deferred_count"] == 0 for c in topic["channels"]
    )


def _summary(topic: Stats) -> str:
    counts = ("depth", "message_count", "in_flight_count", "deferred_count", "requeue_count", "timeout_count")
    channels = [{name: c.get(name) for name in counts} for c in topic["channels"]]
    return f"topic depth {topic['depth']}, channels {channels}"
