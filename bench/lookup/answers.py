"""Whether an answer to /lookup names every nsqd and every channel."""

import json

from bench.lookup.cluster import Cluster
from bench.run import LoadError

PARSE_EVERY = 500
_HEAD_END = b"\r\n\r\n"
_PER_PRODUCER = b'"broadcast_address"'
_PRODUCER_BYTES = 100  # Less than the shortest one.


class Answers:
    """Checks whole HTTP responses. All that are complete have the same size, whatever their order: an answer
    of a size that was right is parsed only every 500th time, to have time for the others."""

    def __init__(self, cluster: Cluster) -> None:
        self._addresses = set(cluster.addresses)
        self._channels = set(cluster.channel_names)
        self._right_sizes: set[int] = set()
        self.checked = self.parsed = 0

    def is_right(self, response: bytearray, size: int) -> bool:
        """`size`: bytes of the response at the beginning of the buffer."""
        self.checked += 1
        if size in self._right_sizes and self.checked % PARSE_EVERY:
            return True
        # Counting spares the parser what cannot be complete, while a cluster registers.
        least_bytes = len(self._addresses) * _PRODUCER_BYTES
        if size < least_bytes or response.count(_PER_PRODUCER, 0, size) != len(self._addresses):
            return False
        self.parsed += 1
        is_right = self._names_all(_body(response, size))
        if is_right:
            self._right_sizes.add(size)
        return is_right

    def _names_all(self, body: bytes) -> bool:
        answer = json.loads(body)
        addresses = [(p["broadcast_address"], p["tcp_port"], p["http_port"]) for p in answer["producers"]]
        return (
            len(addresses) == len(self._addresses)
            and set(addresses) == self._addresses
            and len(answer["channels"]) == len(self._channels)
            and set(answer["channels"]) == self._channels
        )


def _body(response: bytearray, size: int) -> bytes:
    head, _, body = bytes(response[:size]).partition(_HEAD_END)
    if not head.startswith(b"HTTP/1.1 200 "):
        raise LoadError(f"expected 200 OK, got {head[:80]!r}")
    return _unchunked(body) if is_chunked(head) else body


def is_chunked(head: bytes) -> bool:
    return b"transfer-encoding: chunked" in head.lower()


def _unchunked(body: bytes) -> bytes:
    """RFC 9112, section 7.1, without extensions and trailers."""
    parts = []
    while body:
        length, _, body = body.partition(b"\r\n")
        parts.append(body[: int(length, 16)])
        body = body[int(length, 16) + 2 :]
    return b"".join(parts)
