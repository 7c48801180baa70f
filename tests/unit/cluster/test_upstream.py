"""Requests to nsqd and nsqlookupd."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from nsqd_py.cluster.admin_client import UpstreamError, shown_address
from nsqd_py.cluster.upstream import Upstream
from nsqd_py.net.http import BadStatus, Unreachable


def test_a_server_that_wants_https_is_asked_so() -> None:
    refusal = BadStatus(403, "Forbidden", b'{"message": "TLS_REQUIRED", "https_port": 2}')
    client = Mock(**{"exchange.side_effect": [refusal, b"5"]})
    assert Upstream(client).get("a:1", "/stats", {"topic": "t"}) == 5
    asked = [
        f"{method} {url.origin}{url.path}"
        for method, url, *_ in (call.args for call in client.exchange.mock_calls)
    ]
    assert asked == ["GET http://a:1/stats?topic=t", "GET https://a:2/stats?topic=t"]


@pytest.mark.parametrize(
    ("answer", "error", "reason"),
    [
        (BadStatus(403, "No", b"no"), 'got response 403 No "no"', 'got response 403 No "no"'),
        (Unreachable("Connection refused"), "GET http://a:1/stats: Connection refused", "Connection refused"),
    ],
)
def test_what_fails_names_server_and_reason(answer: Exception, error: str, reason: str) -> None:
    with pytest.raises(UpstreamError) as caught:
        Upstream(Mock(**{"exchange.side_effect": answer})).get("a:1", "/stats")
    assert (str(caught.value), caught.value.reason) == (error, reason)


def test_a_password_is_never_shown() -> None:
    assert shown_address("https://user:secret@host:1") == "host:1"
