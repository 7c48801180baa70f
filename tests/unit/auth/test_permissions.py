"""The permissions in the answer of an auth server, and answers that are not valid."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqd_py.auth import permissions
from nsqd_py.auth.permissions import Authorization, BadAuthAnswer, compile_rules, read_answer


def authorization(*grants: dict[str, Any], **fields: Any) -> Authorization:
    answer = read_answer({"ttl": 60, "authorizations": list(grants), **fields})
    rules = list(compile_rules(answer.grants))
    return Authorization(answer.ttl_s, answer.identity, answer.identity_url, rules)


def grant(topic: str, channels: list[str], *allowed: str) -> dict[str, Any]:
    return {"topic": topic, "channels": channels, "permissions": list(allowed)}


# --- the answer


def test_what_is_absent_or_null_is_empty_and_case_does_not_matter() -> None:
    answer = read_answer(
        {"TTL": 1, "identity": None, "Authorizations": [None, {"Topic": "t", "channels": [None]}]}
    )
    assert answer == (1, "", "", [("", [], []), ("t", [""], [])])


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (None, "invalid TTL 0"),
        ({}, "invalid TTL 0"),
        ({"ttl": -1}, "invalid TTL -1"),
        ([], "not an object"),
        ("text", "not an object"),
        ({"ttl": "60"}, "ttl is not an integer"),
        ({"ttl": 60.0}, "ttl is not an integer"),
        ({"ttl": True}, "ttl is not an integer"),
        ({"ttl": 1 << 63}, "ttl is not an integer"),
        ({"ttl": 60, "identity": 7}, "identity is not a string"),
        ({"ttl": 60, "authorizations": {}}, "authorizations is not a list"),
        ({"ttl": 60, "authorizations": ["x"]}, "an authorization is not an object"),
        ({"ttl": 60, "authorizations": [{"topic": 7}]}, "topic is not a string"),
        ({"ttl": 60, "authorizations": [{"channels": "c"}]}, "channels is not a list"),
        ({"ttl": 60, "authorizations": [{"channels": [7]}]}, "channels is not a string"),
        ({"ttl": 60, "authorizations": [{"permissions": ["publish", "fly"]}]}, "unknown permission fly"),
    ],
)
def test_what_is_no_answer(document: Any, reason: str) -> None:
    with pytest.raises(BadAuthAnswer, match=reason):
        read_answer(document)


# --- what is permitted


@pytest.mark.parametrize(
    ("rule", "topic", "channel", "expected"),
    [
        (grant("^t$", ["^c$"], "publish"), b"t", b"", False),  # no expression matches the empty channel
        (grant("^t$", [""], "publish"), b"t", b"", True),
        (grant("rder", ["r"], "subscribe"), b"orders", b"archive", True),  # anywhere in the name
        (grant("(?i)^ORDERS$", [".*"], "publish"), b"orders", b"", True),
        (grant(r"^t\.\d+#ephemeral$", [".*"], "publish"), b"t.12#ephemeral", b"", True),
        (grant(r"^\Qa.b\E\z", [".*"], "publish"), b"a.b", b"", True),
        (grant(r"^\Qa.b\E\z", [".*"], "publish"), b"axb", b"", False),
        (grant("^[[:lower:]]+$", [".*"], "publish"), b"abc", b"", True),
    ],
)
def test_a_rule(rule: dict[str, Any], topic: bytes, channel: bytes, expected: bool) -> None:
    assert authorization(rule).permits(topic, channel) is expected


NAMES = st.text("ab", max_size=3)
PATTERNS = st.sampled_from(["", "a", "^a", "b$", "^ab?$", "a|b", "[^a]", "^$", "(ab)+", "a.b"])
GRANTS = st.builds(
    lambda topic, channels, allowed: {"topic": topic, "channels": channels, "permissions": allowed},
    PATTERNS,
    st.lists(PATTERNS, max_size=3),
    st.lists(st.sampled_from(["publish", "subscribe"]), max_size=2),
)


@given(st.lists(GRANTS, max_size=4), NAMES.filter(bool), NAMES)
def test_decisions_are_those_of_a_plain_model(grants: list[dict[str, Any]], topic: str, channel: str) -> None:
    """The expressions used here mean the same to Python's own engine."""
    wanted = "subscribe" if channel else "publish"
    expected = any(
        wanted in rule["permissions"]
        and re.search(rule["topic"], topic)
        and any(re.search(pattern, channel) for pattern in rule["channels"])
        for rule in grants
    )
    assert authorization(*grants).permits(topic.encode(), channel.encode()) is expected


# --- expressions that are wrong, or meant to hurt


@pytest.mark.parametrize("pattern", ["(", "a**", "(?=a)", r"\8", "a{1001}", "[b-a]"])
@pytest.mark.parametrize("place", ["topic", "channel"])
def test_what_is_no_expression(place: str, pattern: str, capfd: pytest.CaptureFixture[str]) -> None:
    rule = grant(pattern, [".*"], "publish") if place == "topic" else grant("t", [pattern], "publish")
    with pytest.raises(BadAuthAnswer, match=f'unable to compile {place} "{re.escape(pattern)}" .'):
        authorization(rule)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("pattern", [r"\pL{1000}", r"((\pL{10}){10}){10}"])
def test_an_expression_that_is_too_large(pattern: str) -> None:
    with pytest.raises(BadAuthAnswer, match="pattern too large"):
        authorization(grant(pattern, [], "publish"))


def test_all_expressions_together_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = [grant(f"^name{number}$", [".*"], "publish") for number in range(20)]
    assert authorization(*rules).permits(b"name19", b"")
    monkeypatch.setattr(permissions, "MAX_INSTRUCTIONS", 100)
    with pytest.raises(BadAuthAnswer, match="too large"):
        authorization(*rules)
