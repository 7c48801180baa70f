"""Requests to nsqd and nsqlookupd."""

from __future__ import annotations

from typing import Any, cast

import pytest

from nsqd_py.cluster.upstream import Upstream, UpstreamError, place_of
from nsqd_py.net.http.client import BadStatus, HttpClient, Unreachable, Url


class FakeClient:
    """Answers by URL; an exception is raised."""

    def __init__(self, answers: dict[str, Any]) -> None:
        self._answers = answers
        self.asked: list[str] = []

    def exchange(self, method: str, url: Url, *_: Any) -> bytes:
        self.asked.append(f"{method} {url.place}{url.path}")
        answer = self._answers[url.place]
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, bytes)
        return answer


def upstream_to(answers: dict[str, Any]) -> tuple[Upstream, FakeClient]:
    client = FakeClient(answers)
    return Upstream(cast("HttpClient", client)), client


def test_a_server_that_wants_https_is_asked_so() -> None:
    refusal = BadStatus(403, "Forbidden", b'{"message": "TLS_REQUIRED", "https_port": 2}')
    upstream, client = upstream_to({"http://a:1": refusal, "https://a:2": b"5"})
    assert upstream.get("a:1", "/stats", {"topic": "t"}) == 5
    assert client.asked == ["GET http://a:1/stats?topic=t", "GET https://a:2/stats?topic=t"]


@pytest.mark.parametrize(
    ("answer", "error", "reason"),
    [
        (BadStatus(403, "No", b"no"), 'got response 403 No "no"', 'got response 403 No "no"'),
        (Unreachable("Connection refused"), "GET http://a:1/stats: Connection refused", "Connection refused"),
    ],
)
def test_what_fails_names_server_and_reason(answer: Exception, error: str, reason: str) -> None:
    upstream, _ = upstream_to({"http://a:1": answer})
    with pytest.raises(UpstreamError) as caught:
        upstream.get("a:1", "/stats")
    assert (str(caught.value), caught.value.reason) == (error, reason)


def test_a_password_is_never_shown() -> None:
    assert place_of("https://user:secret@host:1") == "host:1"
