"""What a primary and its standby say to each other: what was encoded is decoded, and nothing else is accepted."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqd_py.diskqueue.journals.epochs import Epoch
from nsqd_py.feed.pieces import OfferedFile, OfferedLog, TopicListing
from nsqd_py.standby.messages import (
    FENCE,
    FOLLOW,
    NONCE_BYTES,
    PROOF_BYTES,
    BadStandbyMessage,
    Caller,
    GroupListener,
    NotMember,
    Offer,
    decode_offer,
    encode_offer,
)

FILES = TopicListing(
    "t", (Epoch(100, 0), Epoch(200, 50)), 60, {"t.00000000000000000000.log": 0}, ["t:c.cursor"]
)
OFFER = Offer(
    200, "b:4151", {"t": OfferedLog(FILES.epochs, {"t.00000000000000000000.log": OfferedFile(7, 99, 3)})}
)


def test_logs_that_do_not_fit_are_left_out() -> None:
    assert decode_offer(encode_offer(OFFER, 150)) == Offer(200, "b:4151", {})


HALF = b"\\ud800"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"b:4151"', b'"%b"' % HALF),
        (b'"b:4151"', b'"\xed\xa0\x80"'),
        (b'"fenced_by": ""', b'"fenced_by": "%b"' % HALF.upper()),
        (b'{"t":', b'{"%b":' % HALF),
        (b'"t.00000000000000000000.log"', b'"%b"' % HALF),
    ],
)
def test_half_of_a_surrogate_pair_is_refused(old: bytes, new: bytes) -> None:
    """It could be written to no log, answer or file."""
    document = encode_offer(OFFER, 10_000)
    assert old in document
    with pytest.raises(BadStandbyMessage) as refusal:
        decode_offer(document.replace(old, new))
    str(refusal.value).encode()
    whole = document.replace(b'"b:4151"', b'"\\ud83d\\ude00"')
    assert decode_offer(whole).http_address == "\N{GRINNING FACE}"


# --- the handshake of a group: what each side accepts, and what it gives away


OLD, NEW, OTHER = b"the secret until now", b"the secret from now on", b"the secret of another group"
A, B = "a:4150", "b:4150"
NONCE, OTHER_NONCE = bytes(NONCE_BYTES), b"\x01" * NONCE_BYTES
WRONG = "the proof of membership is wrong"


def caller(
    *, secret: bytes = OLD, purpose: str = FOLLOW, asked: str = A, reached: str = "10.0.0.1:4150"
) -> Caller:
    return Caller(secret, purpose, asked, reached, NONCE)


def listener(*secrets: bytes, own: tuple[str, ...] = (A,), nonce: bytes = OTHER_NONCE) -> GroupListener:
    return GroupListener(secrets or (OLD,), own, nonce)


def shake(one: Caller, other: GroupListener) -> None:
    one.check(other.answer(one.prove(other.answer(one.hello()))))


@pytest.mark.parametrize(
    ("one", "other", "reason"),
    [
        (caller(secret=OTHER), listener(), WRONG),
        (caller(secret=NEW), listener(OLD), WRONG),
        (caller(asked=B), listener(), "wanted to reach b:4150"),
        (caller(asked=B, reached="[::1]:1"), listener(own=(A, "[::1]:4150")), "wanted to reach b:4150"),
        (caller(purpose="look"), listener(), "purpose"),
        (caller(asked="a" * 600), listener(), "asked"),
    ],
)
def test_a_caller_that_is_refused(one: Caller, other: GroupListener, reason: str) -> None:
    with pytest.raises(NotMember, match=reason):
        shake(one, other)
    assert other.purpose == ""
    with pytest.raises(NotMember):
        other.document(one.signed(b"document"))


@pytest.mark.parametrize("changed", ["purpose", "asked", "reached", "nonce"])
def test_a_proof_holds_for_one_handshake(changed: str) -> None:
    """A stranger between the two sides changes one field of the greeting."""
    one, other = caller(), listener(own=(A, B, "c:1"))
    fields = json.loads(one.hello())
    fields[changed] = {"purpose": FENCE, "asked": B, "reached": "c:1", "nonce": "02" * NONCE_BYTES}[changed]
    challenge = other.answer(json.dumps(fields).encode())
    with pytest.raises(NotMember, match=WRONG):
        other.answer(one.prove(challenge))


def test_nothing_else_comes_after_the_proofs() -> None:
    one, other = caller(), listener()
    proof = one.prove(other.answer(one.hello()))
    other.answer(proof)
    with pytest.raises(NotMember, match="twice"):
        other.answer(proof)
    for body in (b"", b"document", one.signed(b"document")[:-1], bytes(PROOF_BYTES) + b"document"):
        with pytest.raises(NotMember, match="wrong proof"):
            other.document(body)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=70),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.sampled_from(["format", "purpose", "asked", "nonce"]), inner)
    ),
)


@given(st.binary() | _JSON.map(json.dumps).map(str.encode) | st.just(b"[" * 4000) | st.just(b" " * 5000))
def test_other_bytes_are_refused_with_a_sentence(body: Any) -> None:
    one, other, greeted = caller(), listener(), listener()
    greeted.answer(one.hello())
    for refuse in (other.answer, greeted.answer, one.prove, one.check):
        with pytest.raises(NotMember):
            refuse(body)
