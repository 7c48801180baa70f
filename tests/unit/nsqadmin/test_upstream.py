"""Which servers get to see nsqadmin's token."""

from __future__ import annotations

import pytest

from nsqadmin_py.upstream import TokenRule
from nsqd_py.net.http import parse_url

SHOWN = {"Authorization": "Bearer s3cret"}
HOSTS = (
    "Nsqd1.example",
    "nsqd2.example:4151",
    "[2001:db9::1]:4151",
    "192.0.2.7",
    "10.1.0.0/16",
    "2001:db8::/32",
)


@pytest.mark.parametrize(
    ("url", "is_shown"),
    [
        ("http://nsqd1.example:4151/stats", True),
        ("http://NSQD1.example:9/stats", True),
        ("http://nsqd2.example:4151/stats", True),
        ("http://nsqd2.example:4152/stats", False),
        ("http://[2001:db9::1]:4151/stats", True),
        ("http://[2001:db9::1]:9/stats", False),
        ("http://192.0.2.7:4151/stats", True),
        ("http://10.1.2.3:4151/stats", True),
        ("http://[2001:db8::5]:4151/stats", True),
        ("http://10.2.2.3:4151/stats", False),
        ("http://evil.example:4151/stats", False),
        ("http://nsqd1.example.evil.example:4151/stats", False),
    ],
)
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_hosts_that_are_named_see_it(url: str, is_shown: bool, scheme: str) -> None:
    """A certificate that the system trusts proves nothing: a stranger has one for the name that he registers."""
    rule = TokenRule("s3cret", HOSTS, has_own_authority=False)
    assert rule.headers_for(parse_url(url.replace("http", scheme, 1))) == (SHOWN if is_shown else {})


def test_a_certificate_of_the_own_authority_is_a_proof() -> None:
    rule = TokenRule("s3cret", HOSTS, has_own_authority=True)
    assert rule.headers_for(parse_url("https://nsqd9.example:4152/stats")) == SHOWN
    assert rule.headers_for(parse_url("http://nsqd9.example:4152/stats")) == {}


def test_what_is_no_block_of_addresses() -> None:
    with pytest.raises(ValueError, match="10.0.0.0/40"):
        TokenRule("s3cret", ["10.0.0.0/40"], has_own_authority=True)
