"""Two connections, each with eight MPUBs of 200 messages in the pipe. Messages per second."""

from bench import wire
from bench.pipeline import Pipeline
from bench.run import Amount, Endpoint, Run, Stopwatch

MESSAGES_PER_MPUB = 200
CONNECTIONS = 2
WINDOW = 8


def mpub_pipeline(port: int) -> Pipeline:
    command = wire.mpub(MESSAGES_PER_MPUB)
    return Pipeline.to_nsqd(port, command, connections=CONNECTIONS, window=WINDOW, answers_per_wake=WINDOW // 2)


def fill(endpoint: Endpoint, messages: int) -> int:
    """Publish about `messages`; returns how many it were."""
    pipeline = mpub_pipeline(endpoint.tcp_port)
    try:
        return pipeline.send(commands=messages // MESSAGES_PER_MPUB) * MESSAGES_PER_MPUB
    finally:
        pipeline.close()


def load(endpoint: Endpoint, amount: Amount) -> Run:
    pipeline = mpub_pipeline(endpoint.tcp_port)
    watch = Stopwatch(endpoint.pid)
    commands = pipeline.send(commands=amount.messages // MESSAGES_PER_MPUB, seconds=amount.seconds)
    watch.stop()
    pipeline.close()
    return watch.rate(commands * MESSAGES_PER_MPUB)
