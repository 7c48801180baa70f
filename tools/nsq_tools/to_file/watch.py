"""Topics by pattern: what the nsqlookupds know, asked again and again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nsqd_py.net.http.client import HttpClient, HttpClientError, Url
from nsqd_py.protocol.names import is_valid_name
from nsqd_py.runtime.logs import Log


class TopicWatch:
    """`topics()` asks all nsqlookupds; one that does not answer is passed over, and said."""

    def __init__(self, client: HttpClient, urls: Sequence[Url], log: Log) -> None:
        self._client = client
        self._urls = urls
        self._log = log

    def topics(self) -> list[str]:
        """In order; none where nobody answers."""
        return sorted({topic for url in self._urls for topic in self._ask(url)})

    def _ask(self, url: Url) -> list[str]:
        try:
            return _valid_topics(self._client.ask(url))
        except HttpClientError as error:
            self._log.error("could not retrieve topic list from %s: %s", url.place, error)
            return []


def _valid_topics(answer: Any) -> list[str]:
    topics = answer.get("topics") if isinstance(answer, dict) else None
    if not isinstance(topics, list):
        raise HttpClientError("the answer has no list of topics")
    return [topic for topic in topics if isinstance(topic, str) and is_valid_name(topic.encode(errors="replace"))]
