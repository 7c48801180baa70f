"""What nsqlookupds are asked, what their answers mean, and when they are asked."""

from __future__ import annotations

from typing import Any

import pytest

from nsqd_py.client.errors import BadClientOption
from nsqd_py.client.lookup import lookup_headers, lookup_url, nsqds_in, poll_after_s
from nsqd_py.client.options import ClientOptions


def producer(host: str, port: Any = 4150) -> dict[str, Any]:
    return {"broadcast_address": host, "tcp_port": port, "http_port": 4151, "hostname": "other"}


# ---- questions and answers


@pytest.mark.parametrize(
    ("address", "url"),
    [
        ("localhost:4161", "http://localhost:4161/lookup?topic=t"),
        ("http://localhost:4161/", "http://localhost:4161/lookup?topic=t"),
        ("https://[::1]:4161", "https://[::1]:4161/lookup?topic=t"),
        ("https://proxy:443/nsq/lookup?zone=1", "https://proxy:443/nsq/lookup?zone=1&topic=t"),
    ],
)
def test_where_a_topic_is_asked_for(address: str, url: str) -> None:
    assert lookup_url(address, "t") == url
    assert lookup_url(address, "t#ephemeral") == f"{url}%23ephemeral"


@pytest.mark.parametrize(
    "address", ["localhost", "http://localhost", "ftp://h:21", "h:port", ":4161", "h:99999", "[::1"]
)
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(BadClientOption, match="host:port"):
        lookup_url(address, "t")


def test_the_secret_is_shown_unless_it_is_not_to_be() -> None:
    assert lookup_headers(ClientOptions.of(auth_secret="s"))["Authorization"] == "Bearer s"
    hidden = ClientOptions.of(auth_secret="s", skip_lookupd_authorization=False)
    assert "Authorization" not in lookup_headers(hidden)
    assert "Authorization" not in lookup_headers(ClientOptions())


@pytest.mark.parametrize(
    "answer",
    [
        None,
        [],
        {},
        {"producers": None},
        {"producers": [1]},
        {"producers": [{}]},
        {"producers": [producer("")]},
        {"producers": [producer("a", "4150")]},
        {"data": {}},
    ],
)
def test_an_answer_that_names_nothing_is_refused(answer: Any) -> None:
    with pytest.raises(ValueError, match="the answer"):
        nsqds_in(answer)


@pytest.mark.parametrize(("chance", "after_s"), [(0.0, 10.0), (0.25, 10.75), (1.0, 13.0)])
def test_jitter_is_a_share_of_the_interval(chance: float, after_s: float) -> None:
    options = ClientOptions.of(lookupd_poll_interval=10, lookupd_poll_jitter=0.3)
    assert poll_after_s(options, chance) == after_s
