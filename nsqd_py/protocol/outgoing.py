"""The commands of a client as bytes: `VERB words\\n`, some followed by a body behind its size.

https://nsq.io/clients/tcp_protocol_spec.html has the commands. Topics and channels are str, ids and bodies bytes.
Every function that takes a name raises BadName for one that nsqd would refuse: most of nsqd's refusals end the
connection, and all commands that share it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import lru_cache

from nsqd_py.errors import NsqdError
from nsqd_py.protocol.batch import SIZE_BYTES
from nsqd_py.protocol.names import is_valid_name

NOP = b"NOP\n"
CLS = b"CLS\n"


class BadName(NsqdError, ValueError):
    """A topic or channel name that no nsqd accepts."""


@lru_cache(maxsize=1024)
def name_bytes(name: object) -> bytes:
    """Return a topic or channel name as bytes. Raises BadName, and TypeError if it is not a str."""
    if not isinstance(name, str):
        hint = f": decode it first, as in {name!r}.decode()" if isinstance(name, bytes) else ""
        raise TypeError(f"a topic or channel is a str, not {type(name).__name__}{hint}")
    encoded = name.encode("utf-8", "surrogateescape")
    if not is_valid_name(encoded):
        raise BadName(
            f"{name!r} is no name of a topic or channel: 1 to 64 of the characters a-z A-Z 0-9 . _ -, "
            "with #ephemeral at most as its end"
        )
    return encoded


def _sized(body: bytes) -> bytes:
    return len(body).to_bytes(SIZE_BYTES, "big") + body


def identify(document: bytes) -> bytes:
    """`document` is a JSON object."""
    return b"IDENTIFY\n" + _sized(document)


def auth(secret: bytes) -> bytes:
    return b"AUTH\n" + _sized(secret)


def sub(topic: str, channel: str) -> bytes:
    return b"SUB %b %b\n" % (name_bytes(topic), name_bytes(channel))


def rdy(count: int) -> bytes:
    return b"RDY %d\n" % count


def fins(ids: Collection[bytes]) -> bytes:
    """Return a FIN for each message."""
    return b"FIN " + b"\nFIN ".join(ids) + b"\n" if ids else b""


def req(message_id: bytes, delay_ms: int) -> bytes:
    return b"REQ %b %d\n" % (message_id, delay_ms)


def touches(ids: Collection[bytes]) -> bytes:
    """Return a TOUCH for each message."""
    return b"TOUCH " + b"\nTOUCH ".join(ids) + b"\n" if ids else b""


@lru_cache(maxsize=1024)
def _pub_prefix(topic: str) -> bytes:
    return b"PUB " + name_bytes(topic) + b"\n"


def pub(topic: str, body: bytes) -> bytes:
    return _pub_prefix(topic) + len(body).to_bytes(SIZE_BYTES, "big") + body


def dpub(topic: str, defer_ms: int, body: bytes) -> bytes:
    return b"DPUB %b %d\n" % (name_bytes(topic), defer_ms) + _sized(body)


def mpub_body(bodies: Sequence[bytes]) -> bytes:
    """Return the body of an MPUB: the number of messages, then each message behind its size."""
    return len(bodies).to_bytes(SIZE_BYTES, "big") + b"".join(_with_sizes(bodies))


def mpub_head(topic: str, body_bytes: int) -> bytes:
    """Return the part of an MPUB before its body, for callers that send the body separately."""
    return b"MPUB %b\n" % name_bytes(topic) + body_bytes.to_bytes(SIZE_BYTES, "big")


def _with_sizes(bodies: Sequence[bytes]) -> list[bytes]:
    """Return each body behind its size, which is encoded once for equal sizes: 90 ns a body, not 170."""
    sizes = list(map(len, bodies))
    heads = {size: size.to_bytes(SIZE_BYTES, "big") for size in set(sizes)}
    parts = [b""] * (2 * len(sizes))
    parts[0::2] = map(heads.__getitem__, sizes)
    parts[1::2] = bodies
    return parts
