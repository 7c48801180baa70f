"""Which servers get to see nsqadmin's token."""

from __future__ import annotations

from pathlib import Path

import pytest

from nsqadmin_py.upstream import TokenFile, TokenRule
from nsqd_py.net.http import parse_url

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
    rule = TokenRule(HOSTS, has_own_authority=False)
    assert rule.may_see_it(parse_url(url.replace("http", scheme, 1))) is is_shown


def test_a_certificate_of_the_own_authority_is_a_proof() -> None:
    rule = TokenRule(HOSTS, has_own_authority=True)
    assert rule.may_see_it(parse_url("https://nsqd9.example:4152/stats"))
    assert not rule.may_see_it(parse_url("http://nsqd9.example:4152/stats"))


def test_what_is_no_block_of_addresses() -> None:
    with pytest.raises(ValueError, match="10.0.0.0/40"):
        TokenRule(["10.0.0.0/40"], has_own_authority=True)


def test_a_token_that_is_replaced_in_its_file(tmp_path: Path) -> None:
    """nsqd reads its file of accounts again: nsqadmin got 401 for each action until it was restarted."""
    path = tmp_path / "token"
    path.write_text("first\n")
    warned: list[str] = []
    token = TokenFile(str(path), warned.append)
    path.write_text("of today\n")
    assert token.headers() == {"Authorization": "Bearer first"}
    assert [str(path) in text for text in warned] == [True]
    path.write_text("second-one\n")
    assert token.headers() == {"Authorization": "Bearer second-one"}
    path.unlink()
    assert token.headers() == {"Authorization": "Bearer second-one"}
    assert len(warned) == 2
