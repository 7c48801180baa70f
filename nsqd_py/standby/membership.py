"""The handshake by which two nsqds prove to each other that they belong to one group, before anything else is said.

The *caller* connects: a standby that wants to follow, or a new primary that fences an old one. The *listener* accepts.
Both know a secret of the group, which is never sent:

    caller    MEMBER {purpose, asked, reached, nonce}
    listener  {nonce}
    caller    MEMBER {proof}
    listener  {proof}                    only if the caller's proof is right
    caller    STANDBY proof, document    the proof covers the document: epochs and addresses

A proof is HMAC-SHA256 over a label, the role of the side that proves, the purpose, both addresses, both nonces, and
the document. So it cannot be sent back to its author, used again, or used for another purpose. `asked` is the address
that the caller was configured to connect to and `reached` the address of its socket: the listener refuses a caller that
wanted to reach another nsqd, so that a proof cannot be relayed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from nsqd_py.errors import NsqdError

FORMAT = 1
NONCE_BYTES = 32
PROOF_BYTES = 32
FOLLOW, FENCE = "follow", "fence"

_LABEL = b"nsqd membership 1"
_CALLER, _LISTENER, _DOCUMENT = b"caller", b"listener", b"document"
_WRONG_PROOF = "the proof of membership is wrong: the files of --standby-secret-file have no secret in common"
_MOST_BYTES = 4096
_MOST_ADDRESS = 512


class NotMember(NsqdError):
    """The other side does not prove that it belongs to the group; the text says what is wrong."""


@dataclass(frozen=True, slots=True)
class Handshake:
    """What both sides of one connection know.

    purpose  FOLLOW or FENCE
    asked    address that the caller was configured to connect to
    reached  address of the socket that it reached
    """

    purpose: str
    asked: str
    reached: str
    caller_nonce: bytes
    listener_nonce: bytes

    def _proof(self, secret: bytes, role: bytes, document: bytes = b"") -> bytes:
        import hmac  # loads OpenSSL: only members of a group need it

        texts = (self.purpose, self.asked, self.reached)
        parts = (_LABEL, role, *map(str.encode, texts), self.caller_nonce, self.listener_nonce, document)
        return hmac.digest(secret, b"".join(len(part).to_bytes(4, "big") + part for part in parts), "sha256")


def _is_same(proof: bytes, expected: bytes) -> bool:
    import hmac

    return hmac.compare_digest(proof, expected)


class Caller:
    """The side that connects. `nonce` must be new and random."""

    def __init__(self, secret: bytes, purpose: str, asked: str, reached: str, nonce: bytes) -> None:
        self._secret = secret
        self._hello = Handshake(purpose, asked, reached, nonce, b"")
        self._handshake = self._hello

    def hello(self) -> bytes:
        """Return the body of the first MEMBER."""
        known = self._hello
        return _encode(
            format=FORMAT, purpose=known.purpose, asked=known.asked, reached=known.reached, nonce=known.caller_nonce.hex()
        )

    def prove(self, challenge: bytes) -> bytes:
        """Return the body of the second MEMBER, for the listener's answer to the first. Raises NotMember."""
        known = self._hello
        nonce = _bytes_of(_decode(challenge), "nonce", NONCE_BYTES)
        self._handshake = Handshake(known.purpose, known.asked, known.reached, known.caller_nonce, nonce)
        return _encode(proof=self._handshake._proof(self._secret, _CALLER).hex())

    def check(self, answer: bytes) -> None:
        """Check the listener's proof, its answer to the second MEMBER. Raises NotMember."""
        proof = _bytes_of(_decode(answer), "proof", PROOF_BYTES)
        if not _is_same(proof, self._handshake._proof(self._secret, _LISTENER)):
            raise NotMember(_WRONG_PROOF)

    def signed(self, document: bytes) -> bytes:
        """Return the body of STANDBY."""
        return self._handshake._proof(self._secret, _DOCUMENT, document) + document


class Listener:
    """The side that accepts one caller. `nonce` must be new and random.

    secrets  those that the group uses now; the answer has a proof of the one that the caller used
    """

    def __init__(self, secrets: Iterable[bytes], own_addresses: Iterable[str], nonce: bytes) -> None:
        """`own_addresses` are those at which a caller may have wanted to reach this nsqd."""
        self._secrets = tuple(secrets)
        self._own_addresses = tuple(own_addresses)
        self._nonce = nonce
        self._handshake: Handshake | None = None
        self._secret: bytes | None = None

    @property
    def purpose(self) -> str:
        """The caller's purpose; "" before it is proven."""
        return self._handshake.purpose if self._handshake is not None and self._secret is not None else ""

    def answer(self, body: bytes) -> bytes:
        """Return the answer to a MEMBER. Raises NotMember."""
        fields = _decode(body)
        return self._challenge(fields) if self._handshake is None else self._check(self._handshake, fields)

    def _challenge(self, fields: Mapping[str, Any]) -> bytes:
        if fields.get("format") != FORMAT:
            raise NotMember(f"the handshake has the format {fields.get('format')!r:.20}, not {FORMAT}")
        purpose, asked, reached = (_text_of(fields, name) for name in ("purpose", "asked", "reached"))
        if purpose not in (FOLLOW, FENCE):
            raise NotMember("the purpose is unknown")
        nonce = _bytes_of(fields, "nonce", NONCE_BYTES)
        self._handshake = Handshake(purpose, asked, reached, nonce, self._nonce)
        return _encode(nonce=self._nonce.hex())

    def _check(self, handshake: Handshake, fields: Mapping[str, Any]) -> bytes:
        if self._secret is not None:
            raise NotMember("the proof of membership came twice")
        proof = _bytes_of(fields, "proof", PROOF_BYTES)
        for secret in self._secrets:
            if _is_same(proof, handshake._proof(secret, _CALLER)):
                break
        else:
            raise NotMember(_WRONG_PROOF)
        if handshake.asked not in self._own_addresses and handshake.reached not in self._own_addresses:
            raise NotMember(
                f"the caller wanted to reach {handshake.asked}, and this nsqd is {' or '.join(self._own_addresses)} "
                "(--broadcast-address, --broadcast-tcp-port)"
            )
        self._secret = secret
        return _encode(proof=handshake._proof(secret, _LISTENER).hex())

    def document(self, body: bytes) -> bytes:
        """Return the document in the body of STANDBY. Raises NotMember."""
        if self._handshake is None or self._secret is None:
            raise NotMember("no proof of membership")
        proof, document = body[:PROOF_BYTES], body[PROOF_BYTES:]
        if not _is_same(proof, self._handshake._proof(self._secret, _DOCUMENT, document)):
            raise NotMember("the document of STANDBY has a wrong proof")
        return document


# ---- the documents


def _encode(**fields: object) -> bytes:
    return json.dumps(fields).encode()


def _decode(body: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(body) if len(body) <= _MOST_BYTES else None
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        raise NotMember("the handshake is not valid")
    return fields


def _text_of(fields: Mapping[str, Any], name: str) -> str:
    text = fields.get(name)
    if not isinstance(text, str) or len(text) > _MOST_ADDRESS or not text.isascii():
        raise NotMember(f"the handshake has no valid {name}")
    return text


def _bytes_of(fields: Mapping[str, Any], name: str, size_bytes: int) -> bytes:
    try:
        found = bytes.fromhex(fields[name])
    except (KeyError, TypeError, ValueError):
        found = b""
    if len(found) != size_bytes:
        raise NotMember(f"the handshake has no valid {name}")
    return found
