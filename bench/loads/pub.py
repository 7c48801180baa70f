"""One connection that sends PUBs of 200 bytes: with 100 in the pipe, or each after the answer to the last."""

import time

from bench import wire
from bench.pipeline import Pipeline
from bench.run import Amount, Endpoint, LoadError, Run, Stopwatch

WINDOW = 100
_LOOK_EVERY = 256


def pipelined(endpoint: Endpoint, amount: Amount) -> Run:
    pipeline = Pipeline.to_nsqd(endpoint.tcp_port, wire.pub(), connections=1, window=WINDOW)
    watch = Stopwatch(endpoint.pid)
    messages = pipeline.send(commands=amount.messages, seconds=amount.seconds)
    watch.stop()
    pipeline.close()
    return watch.rate(messages)


def single(endpoint: Endpoint, amount: Amount) -> Run:
    command, ok = wire.pub(), wire.OK_FRAME
    sock = wire.connect(endpoint.tcp_port)
    send, receive = sock.sendall, sock.recv
    watch = Stopwatch(endpoint.pid)
    deadline_s = watch.started_s + amount.seconds
    messages = 0
    while messages < amount.messages and time.perf_counter() < deadline_s:
        for _ in range(_LOOK_EVERY):
            send(command)
            answer = receive(4096)
            if answer != ok:
                raise LoadError(f"expected OK, got {answer[:80]!r}")
        messages += _LOOK_EVERY
    watch.stop()
    sock.close()
    return watch.rate(messages)
