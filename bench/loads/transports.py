"""MPUB as in `mpub`, over TLS, snappy or deflate. Messages per second.

What is compressed is compressed once and sent again and again: both formats allow it, and the load then costs
little. Over TLS this process encrypts, as fast as any client.
"""

import json
import os
import socket
import ssl
import threading
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import snappy

from bench import wire
from bench.loads.mpub import CONNECTIONS, MESSAGES_PER_MPUB, WINDOW
from bench.run import Amount, Endpoint, LoadError, Run, Stopwatch

# A part of each body that does not compress, so that compression has something to do.
_RANDOM_BYTES = 20
_RECEIVE_BYTES = 64 * 1024
_STALLED_S = 30.0


@dataclass(slots=True)
class Transport:
    """What is sent instead of one MPUB, once before that, and how answers are read."""

    command: bytes
    first: bytes = b""
    decode: Callable[[bytes], bytes] = field(default=bytes)


def _mpub() -> bytes:
    body = os.urandom(_RANDOM_BYTES) + bytes(wire.BODY_BYTES - _RANDOM_BYTES)
    return wire.mpub(MESSAGES_PER_MPUB).replace(wire.BODY, body)


def _tls() -> Transport:
    return Transport(_mpub())


def _snappy() -> Transport:
    stream = snappy.StreamCompressor().add_chunk(_mpub())
    identifier_bytes = 10
    return Transport(stream[identifier_bytes:], stream[:identifier_bytes], snappy.StreamDecompressor().decompress)


def _deflate() -> Transport:
    compressor = zlib.compressobj(6, zlib.DEFLATED, -15)
    compressor.flush(zlib.Z_FULL_FLUSH)
    # After a full flush, a block refers to nothing before it: it may come again.
    block = compressor.compress(_mpub()) + compressor.flush(zlib.Z_FULL_FLUSH)
    return Transport(block, decode=zlib.decompressobj(-15).decompress)


_TRANSPORTS = {"tls_v1": _tls, "snappy": _snappy, "deflate": _deflate}


class Publisher:
    """One connection, with a window of MPUBs in the pipe, in a thread of its own."""

    def __init__(self, endpoint: Endpoint, feature: str) -> None:
        self._transport = _TRANSPORTS[feature]()
        self._answers = wire.OkCounter()
        self.acked = 0
        self._sock = wire.connect(endpoint.tcp_port)
        self._sock.settimeout(_STALLED_S)
        self._sock.sendall(wire.identify(json.dumps({"feature_negotiation": True, feature: True}).encode()))
        size = int.from_bytes(self._sock.recv(4, socket.MSG_WAITALL), "big")
        negotiated = json.loads(self._sock.recv(size, socket.MSG_WAITALL)[4:])
        if not negotiated[feature]:
            raise LoadError(f"the server does not agree to {feature}")
        if feature == "tls_v1":
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            self._sock = context.wrap_socket(self._sock)
        self._sock.sendall(self._transport.first)
        while not self._receive():  # the OK of the upgrade
            pass

    def _receive(self) -> int:
        data = self._sock.recv(_RECEIVE_BYTES)
        if not data:
            raise ConnectionError("nsqd closed the connection")
        return self._answers.feed(self._transport.decode(data))

    def run(self, deadline_s: float) -> None:
        command = self._transport.command
        sent = WINDOW
        self._sock.sendall(command * WINDOW)
        while self.acked < sent:
            answers = self._receive()
            self.acked += answers
            if answers and time.perf_counter() < deadline_s:
                self._sock.sendall(command * answers)
                sent += answers

    def close(self) -> None:
        self._sock.close()


def _load(feature: str, endpoint: Endpoint, amount: Amount) -> Run:
    publishers = [Publisher(endpoint, feature) for _ in range(CONNECTIONS)]
    watch = Stopwatch(endpoint.pid)
    deadline_s = time.perf_counter() + amount.seconds
    threads = [threading.Thread(target=publisher.run, args=(deadline_s,)) for publisher in publishers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    watch.stop()
    for publisher in publishers:
        publisher.close()
    return watch.rate(sum(publisher.acked for publisher in publishers) * MESSAGES_PER_MPUB)


tls = partial(_load, "tls_v1")
snappy_load = partial(_load, "snappy")
deflate = partial(_load, "deflate")
