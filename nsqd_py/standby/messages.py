"""The messages between two nsqds of a group: a handshake, an offer, then a stream of files.

The handshake proves to each that the other belongs to the group, before anything else is said.

The *caller* connects: a standby that wants to follow, a new primary that fences an old one, or either of them to fetch
what it lacks of a log (`fetch_server`). The *listener* accepts. Both know a secret of the group, which is never sent:

    caller    MEMBER {purpose, asked, reached, nonce}
    listener  {nonce}
    caller    MEMBER {proof}
    listener  {proof}                    only if the caller's proof is right
    caller    STANDBY proof, document    the proof covers the document: epochs and addresses, or a request for FETCH

A proof is HMAC-SHA256 over a label, the role of the side that proves, the purpose, both addresses, both nonces, and
the document. So it cannot be sent back to its author, reused, or used for another purpose. `asked` is the address
that the caller was configured to connect to and `reached` the address of its socket: the listener refuses a caller that
tried to reach another nsqd, so that a proof cannot be relayed.

A standby is a client of the primary's TCP port. After the handshake, it sends `STANDBY` with a JSON
document that says which part of each log it has (`Offer`), and `ACK <round>` after it has written a round. The primary
sends frames of type 3, whose data are a piece of the feed, see `nsqd_py.feed.codec`, or this, little-endian:

    ROUND    u8 8, round u64, lag: messages u64, bytes u64, ms u64   acknowledge when everything before is written
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from struct import Struct
from typing import Any, NamedTuple

from nsqd_py.diskqueue.journals.epochs import decode_epochs
from nsqd_py.errors import NsqdError
from nsqd_py.feed import codec
from nsqd_py.feed.lag import Lag
from nsqd_py.feed.pieces import OfferedFile, OfferedLog, Piece
from nsqd_py.runtime.documents import load_member_json

# The handshake.
HANDSHAKE_FORMAT = 1
NONCE_BYTES = 32
PROOF_BYTES = 32
FOLLOW = "follow"
FENCE = "fence"
FETCH = "fetch"

_LABEL = b"nsqd membership 1"
_CALLER = b"caller"
_LISTENER = b"listener"
_DOCUMENT = b"document"
_WRONG_PROOF = "the proof of membership is wrong: the files of --standby-secret-file have no secret in common"
_MOST_BYTES = 4096
_MOST_ADDRESS = 512

# The stream.
FORMAT = 1
STREAM_FRAME = 3

ROUND = 8

_ROUND = Struct("<BQQQQ")
_FRAME_HEAD = Struct(">ii")


# ---- the handshake


class NotMember(NsqdError):
    """The other side does not prove that it belongs to the group; the text says what is wrong."""


@dataclass(frozen=True, slots=True)
class GroupHandshake:
    """The values that both sides of one connection know.

    purpose  FOLLOW, FENCE or FETCH
    asked    address that the caller was configured to connect to
    reached  address of the socket that it reached
    """

    purpose: str
    asked: str
    reached: str
    caller_nonce: bytes
    listener_nonce: bytes

    def _proof(self, secret: bytes, role: bytes, document: bytes = b"") -> bytes:
        texts = (self.purpose, self.asked, self.reached)
        parts = (_LABEL, role, *map(str.encode, texts), self.caller_nonce, self.listener_nonce, document)
        return hmac.digest(secret, b"".join(len(part).to_bytes(4, "big") + part for part in parts), "sha256")


class Caller:
    """The side that connects. `nonce` must be new and random."""

    def __init__(self, secret: bytes, purpose: str, asked: str, reached: str, nonce: bytes) -> None:
        self._secret = secret
        self._handshake = GroupHandshake(purpose, asked, reached, nonce, b"")

    def hello(self) -> bytes:
        """Return the body of the first MEMBER."""
        own = self._handshake
        nonce = own.caller_nonce.hex()
        return _encode(
            format=HANDSHAKE_FORMAT, purpose=own.purpose, asked=own.asked, reached=own.reached, nonce=nonce
        )

    def prove(self, challenge: bytes) -> bytes:
        """Return the body of the second MEMBER, for the listener's answer to the first. Raises NotMember."""
        nonce = _bytes_of(_decode(challenge), "nonce", NONCE_BYTES)
        self._handshake = replace(self._handshake, listener_nonce=nonce)
        return _encode(proof=self._handshake._proof(self._secret, _CALLER).hex())

    def check(self, answer: bytes) -> None:
        """Check the listener's proof, its answer to the second MEMBER. Raises NotMember."""
        proof = _bytes_of(_decode(answer), "proof", PROOF_BYTES)
        if not hmac.compare_digest(proof, self._handshake._proof(self._secret, _LISTENER)):
            raise NotMember(_WRONG_PROOF)

    def signed(self, document: bytes) -> bytes:
        """Return the body of STANDBY."""
        return self._handshake._proof(self._secret, _DOCUMENT, document) + document


class GroupListener:
    """The side that accepts one caller. `nonce` must be new and random.

    secrets  those that the group uses now; the answer has a proof of the one that the caller used
    """

    def __init__(self, secrets: Iterable[bytes], own_addresses: Iterable[str], nonce: bytes) -> None:
        """Wait for a caller. `own_addresses` are those at which it may have tried to reach this nsqd."""
        self._secrets = tuple(secrets)
        self._own_addresses = tuple(own_addresses)
        self._nonce = nonce
        self._handshake: GroupHandshake | None = None
        self._secret: bytes | None = None

    @property
    def purpose(self) -> str:
        """The caller's purpose; "" before it is proven."""
        if self._handshake is not None and self._secret is not None:
            return self._handshake.purpose
        return ""

    def answer(self, body: bytes) -> bytes:
        """Return the answer to a MEMBER. Raises NotMember."""
        fields = _decode(body)
        if self._handshake is None:
            return self._challenge(fields)
        return self._check(self._handshake, fields)

    def _challenge(self, fields: Mapping[str, Any]) -> bytes:
        if fields.get("format") != HANDSHAKE_FORMAT:
            raise NotMember(
                f"the handshake has the format {fields.get('format')!r:.20}, not {HANDSHAKE_FORMAT}"
            )
        purpose, asked, reached = (_text_of(fields, name) for name in ("purpose", "asked", "reached"))
        if purpose not in (FOLLOW, FENCE, FETCH):
            raise NotMember("the purpose is unknown")
        nonce = _bytes_of(fields, "nonce", NONCE_BYTES)
        self._handshake = GroupHandshake(purpose, asked, reached, nonce, self._nonce)
        return _encode(nonce=self._nonce.hex())

    def _check(self, handshake: GroupHandshake, fields: Mapping[str, Any]) -> bytes:
        if self._secret is not None:
            raise NotMember("the proof of membership came twice")
        proof = _bytes_of(fields, "proof", PROOF_BYTES)
        for secret in self._secrets:
            if hmac.compare_digest(proof, handshake._proof(secret, _CALLER)):
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
        proof = body[:PROOF_BYTES]
        document = body[PROOF_BYTES:]
        if not hmac.compare_digest(proof, self._handshake._proof(self._secret, _DOCUMENT, document)):
            raise NotMember("the document of STANDBY has a wrong proof")
        return document


# ---- the documents of the handshake


def _encode(**fields: object) -> bytes:
    return json.dumps(fields).encode()


def _decode(body: bytes) -> dict[str, Any]:
    try:
        fields = None
        if len(body) <= _MOST_BYTES:
            fields = load_member_json(body)
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


# ---- the stream


# The bytes are not a message of this protocol; the text says why.
BadStandbyMessage = codec.BadPiece


class GroupMember(NamedTuple):
    """An nsqd in a group that shares a lease: the id of its data path, and where others can follow it."""

    id: str
    address: str


class Round(NamedTuple):
    """The end of a round; `lag` is as the primary saw it when it sent this."""

    number: int
    lag: Lag


Message = codec.Message | Round


def piece_frame(piece: Piece) -> bytes:
    """Return the frame of a piece of the feed."""
    return stream_frame(*codec.encode(piece))


def round_frame(number: int, lag: Lag) -> bytes:
    """Return the frame of a ROUND."""
    return stream_frame(_ROUND.pack(ROUND, number, *lag))


def stream_frame(*parts: bytes) -> bytes:
    """Return a frame of type 3 with these data."""
    return b"".join((_FRAME_HEAD.pack(sum(map(len, parts)) + 4, STREAM_FRAME), *parts))


def decode(data: bytes) -> Message:
    """Return the message in the data of a frame. Raises BadStandbyMessage."""
    if not data or data[0] != ROUND:
        return codec.decode(data)
    try:
        _, number, *lag = _ROUND.unpack(data)
        return Round(number, Lag(*lag))
    except Exception as error:
        raise BadStandbyMessage(f"a message of kind {ROUND} is damaged: {error!r}") from error


# ---- the offer


@dataclass
class Offer:
    """The content of a standby's data path. `epoch` is the newest epoch of its logs, `http_address` where others can ask it.

    member     what the group that shares a lease knows of it; None without a lease
    fenced_by  TCP address of the nsqd that sends this, if it does not want to follow, but is a newer primary
    is_backup  True if the sender ends after its first round: it is no standby
    address    where the primary can fetch from it; empty if that is not known
    """

    epoch: int = 0
    http_address: str = ""
    logs: dict[str, OfferedLog] = field(default_factory=dict)
    fenced_by: str = ""
    member: GroupMember | None = None
    is_backup: bool = False
    address: str = ""


def encode_offer(offer: Offer, most_bytes: int) -> bytes:
    """Return the document of STANDBY. Logs that do not fit into `most_bytes` are left out: they are copied again."""
    document: dict[str, Any] = {"format": FORMAT, **asdict(replace(offer, logs={}))}
    logs = {}
    size_bytes = len(json.dumps(document)) + 100
    for topic, log in offer.logs.items():
        fields = {"epochs": log.epochs, "files": log.files}
        size_bytes += len(json.dumps({topic: fields})) + 2
        if size_bytes > most_bytes:
            break
        logs[topic] = fields
    return json.dumps(document | {"logs": logs}).encode()


def decode_offer(body: bytes) -> Offer:
    """Return the offer in the document of STANDBY. Raises BadStandbyMessage."""
    try:
        document = load_member_json(body)
        if document["format"] != FORMAT:
            raise ValueError(f"format {document['format']}, not {FORMAT}")
        logs = {
            str(topic): OfferedLog(
                decode_epochs(fields["epochs"]),
                {str(name): OfferedFile(*map(int, file)) for name, file in fields["files"].items()},
            )
            for topic, fields in document["logs"].items()
        }
        member = document.get("member")
        return Offer(
            int(document["epoch"]),
            str(document["http_address"])[:256],
            logs,
            str(document.get("fenced_by", ""))[:256],
            GroupMember(*(str(part)[:256] for part in member)) if member is not None else None,
            document.get("is_backup") is True,
            str(document.get("address", ""))[:256],
        )
    except Exception as error:
        raise BadStandbyMessage(f"the document of STANDBY is not valid: {error}") from error
