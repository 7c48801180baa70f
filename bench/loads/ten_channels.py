"""One topic with ten channels: from the first MPUB until /stats shows every message in all of them."""

from bench.admin import Admin, channels_hold
from bench.loads.mpub import MESSAGES_PER_MPUB, mpub_pipeline
from bench.run import Amount, Endpoint, Run, Stopwatch

CHANNELS = 10


def load(endpoint: Endpoint, amount: Amount) -> Run:
    admin = Admin(endpoint.http_port)
    admin.create(*(f"channel{number}" for number in range(CHANNELS)))
    pipeline = mpub_pipeline(endpoint.tcp_port)
    watch = Stopwatch(endpoint.pid)
    messages = pipeline.send(commands=amount.messages // MESSAGES_PER_MPUB) * MESSAGES_PER_MPUB
    admin.wait_for(channels_hold(messages), within_s=60, every_s=0.005)
    watch.stop()
    pipeline.close()
    return watch.rate(messages, channels=CHANNELS)
