"""What is measured of our programs, mostly beside Go's, how much of it, and what it is held to."""

from bench.run import Amount
from bench.scenario import Scenario, Side, Work
from bench.server import NSQLOOKUPD

MEMORY_QUEUE = "--mem-queue-size=10000000"
DISK_QUEUE = "--mem-queue-size=0"
MILLION_QUEUE = "--mem-queue-size=1000000"
SYNC_EVERY = "--sync-every=1"
DEFAULT_QUEUE = "--mem-queue-size=10000"
CONSUMER_RATE, PRODUCER_RATE = 150_000.0, 300_000.0
ADMIN_LIST_P99_MS = 500.0
LOOKUP_P99_MS, LOOKUP_MEMORY_MB, LOOKUP_RESTART_S = 10.0, 500.0, 20.0


_MOST = 9_000_000  # Stays below MEMORY_QUEUE: a peer "in memory" must not overflow to its disk.
_TIMED = Amount(seconds=3, messages=_MOST)


def _sides(amount: Amount, peer_amount: Amount | None = None, peer_flag: str = MEMORY_QUEUE) -> tuple[Side, Side]:
    return Side(amount, (DEFAULT_QUEUE,)), Side(peer_amount or amount, (peer_flag,))


def _counted(messages: int) -> Amount:
    return Amount(seconds=60, messages=messages)


def _lookup(load: str, unit: str, *details: str, below: float | None = None) -> Scenario:
    """One of 200 nsqds with 500 topics of 3 channels each."""
    side = Side(_TIMED)
    return Scenario(
        load, unit, side, side, lower_is_better=True, below=below, details=details, daemon=NSQLOOKUPD,
        section="nsqlookupd", rounds=1,
    )  # fmt: skip


def _tool(load: str, program: str, messages: int, at_least: float) -> Scenario:
    """One of ours beside the program of that name among the peer's tools."""
    side = Side(_counted(messages), (MEMORY_QUEUE,))
    work = Work(load, (f"nsq_apps.{program}",), program)
    return Scenario(load, "msg/s", side, side, at_least=at_least, work=work, section="tools")


def _client(load: str, name: str, peer: str | None, *, at_least: float | None = None, above: float) -> Scenario:
    """Our library used as `name` beside another; the others are slow, and get less to do."""
    module = f"bench.clients.{load}"
    label = f"{load}-{name}".removesuffix("-ours") + (f"-beside-{peer}" if peer else "")
    work = Work(label, (module, name), (module, peer) if peer else None)
    sides = Side(_counted(1_000_000), (MEMORY_QUEUE,)), Side(_counted(100_000), (MEMORY_QUEUE,))
    return Scenario(load, "msg/s", *sides, at_least=at_least, above=above, work=work, section="clients")


def _spark(
    name: str,
    load: str,
    unit: str,
    subject: tuple[str, ...],
    peer: tuple[str, ...] | None = None,
    *,
    messages: int = 5_000_000,
    at_least: float | None = None,
    below: float | None = None,
    above: float | None = None,
) -> Scenario:
    """A part of the Spark pipeline, alone or beside another one, on an archive of so many messages."""
    side = Side(_counted(messages), (DEFAULT_QUEUE,))
    return Scenario(
        load, unit, side, side, lower_is_better=not unit.endswith("/s"), at_least=at_least, below=below, above=above,
        work=Work(f"spark-{name}", subject, peer), section="spark", rounds=1,
    )  # fmt: skip


def _generated(
    name: str, arguments: str, at_least: float | None = None, *, below: float | None = None, sync: bool = False
) -> Scenario:
    """One of the neutral load generator's; `below` holds the wait for an answer at a fixed rate, in ms."""
    flags = (DEFAULT_QUEUE, SYNC_EVERY) if sync else (DEFAULT_QUEUE,)
    waits = below is not None
    details = ("published_per_s", "consumed_per_s", "e2e_p99_ms") if "-consumers" in arguments else ()
    return Scenario(
        "neutral-wait" if waits else "neutral",
        "ms" if waits else "msg/s",
        Side(_TIMED, flags),
        Side(_TIMED, flags),
        lower_is_better=waits,
        at_least=at_least,
        below=below,
        details=(*details, "peak_rss_mb") if "65536" in arguments else details,
        name=name,
        section="neutral",
        generator=tuple(arguments.split()),
    )


# What most producers do: each waits for its answer, or batches a little.
_GENERATED = (
    _generated("pub-1", "-mode pub -conns 1", 0.9),
    _generated("pub-16", "-mode pub -conns 16", 1),
    _generated("pub-64", "-mode pub -conns 64", 1),
    _generated("pub-500", "-mode pub -conns 500", 1),
    _generated("pub-16-consumed", "-mode pub -conns 16 -consumers 4 -rdy 100", 1),
    _generated("pub-open-20k", "-mode pub -conns 20 -consumers 2 -rate 20000", below=10),
    _generated("pub-open-30k", "-mode pub -conns 20 -consumers 2 -rate 30000", below=10),
    _generated("mpub-of-10", "-mode mpub -conns 4 -batch 10", 1),
    _generated("dpub-pipelined", "-mode defer -conns 4 -window 100", 1.5),
    _generated("mpub-of-10-64k", "-mode mpub -conns 2 -batch 10 -size 65536", 0.8),
    _generated("mpub-of-10-64k-consumed", "-mode mpub -conns 2 -batch 10 -size 65536 -consumers 2 -rdy 100", 0.8),
    _generated("pub-4-64k-consumed", "-mode pub -conns 4 -size 65536 -consumers 2 -rdy 100", 0.8),
    _generated("mpub-of-200-1k", "-mode mpub -conns 2 -batch 200 -size 1024", 1),
    _generated("mpub-consumed", "-mode mpub -conns 4 -batch 200 -consumers 2", 1),
    _generated("ten-channels-published", "-mode mpub -conns 2 -batch 200 -consumers 10 -channels 10", 1),
    _generated("mpub-100-topics", "-mode mpub -conns 4 -batch 100 -topics 100", 1),
    _generated("pub-1000-topics", "-mode pub -conns 4 -topics 1000", 1),
    _generated("pub-16-sync", "-mode pub -conns 16", sync=True),
    _generated("pub-64-sync", "-mode pub -conns 64", sync=True),
)

_REPLAY = ("bench.clients.spark", "replay")
_COMMAND = ("nsq_apps.spark_replay", "--master=local[2]", "--conf=spark.driver.memory=1g")
_TWO = "local[2]"
_WHERE = "--where=json.level = 'error'"
_FIVE_GB = 21_500_000

SCENARIOS = (
    *_GENERATED,
    Scenario("mpub", "msg/s", *_sides(_TIMED), at_least=1.2, is_quick=True),
    Scenario("mpub", "msg/s", *_sides(_TIMED, peer_flag=DISK_QUEUE), peer_setting="on disk", at_least=4),
    Scenario("mpub-tls", "msg/s", *_sides(_TIMED), at_least=0.9, with_tls=True),
    Scenario("mpub-snappy", "msg/s", *_sides(_TIMED), at_least=1),
    Scenario("mpub-deflate", "msg/s", *_sides(_TIMED), at_least=1),
    Scenario(
        "mpub-sync",
        "msg/s",
        Side(_TIMED, (DEFAULT_QUEUE, SYNC_EVERY)),
        Side(_TIMED, (DEFAULT_QUEUE,)),
        at_least=0.5,
        beside_itself=True,
    ),
    Scenario(
        "pub-sync",
        "x",
        Side(_TIMED, (SYNC_EVERY,)),
        Side(_TIMED, (SYNC_EVERY,)),
        above=10,
        details=("fsyncs_per_s",),
    ),
    Scenario("sub", "msg/s", *_sides(_counted(2_000_000)), at_least=1.4, is_quick=True),
    Scenario(
        "sub",
        "msg/s",
        *_sides(_counted(2_000_000), _counted(500_000), DISK_QUEUE),
        peer_setting="on disk",
        at_least=4,
    ),
    Scenario("pub-pipelined", "msg/s", *_sides(_TIMED), at_least=2, is_quick=True),
    Scenario("pub-single", "msg/s", *_sides(_TIMED), at_least=0.9, one_core=True, is_quick=True),
    Scenario("http-pub", "req/s", *_sides(_TIMED), at_least=0.9, is_quick=True),
    Scenario("ten-channels", "msg/s", *_sides(_counted(1_000_000)), at_least=3),
    Scenario("latency", "us", *_sides(_TIMED), lower_is_better=True, below=1000, details=("p99_us",)),
    Scenario(
        "memory",
        "MB",
        Side(_counted(1_000_000), (MILLION_QUEUE,)),
        Side(_counted(1_000_000), (MILLION_QUEUE,)),
        lower_is_better=True,
        below=300,
    ),
    Scenario("idle-connections", "KB", *_sides(_TIMED), lower_is_better=True, below=20),
    Scenario("idle-heartbeats", "%", *_sides(Amount(seconds=30, messages=_MOST)), lower_is_better=True, below=5),
    _lookup("lookup-register", "s"),
    _lookup("lookup-register-pipelined", "s"),
    _lookup("lookup", "ms", "p50_ms", "max_ms", "requests_per_s", below=LOOKUP_P99_MS),
    _lookup("lookup-paced", "ms", "p50_ms", "max_ms", "requests_per_s", below=LOOKUP_P99_MS),
    _lookup("lookup-memory", "MB", "pss_mb", "asked_mb", below=LOOKUP_MEMORY_MB),
    _lookup("lookup-restart", "s", "registered_s", "asked_p99_ms", below=LOOKUP_RESTART_S),
    _lookup("lookup-restart-paced", "s", "registered_s", "asked_p99_ms", below=LOOKUP_RESTART_S),
    _tool("to-file", "nsq_to_file", 1_000_000, at_least=1),
    _tool("to-file-gzip", "nsq_to_file", 1_000_000, at_least=1),
    _tool("tail", "nsq_tail", 1_000_000, at_least=1),
    _tool("to-nsq", "to_nsq", 1_000_000, at_least=2),
    _client("consume", "ours", "gnsq", at_least=5, above=CONSUMER_RATE),
    _client("consume", "ours", "pynsq", at_least=5, above=CONSUMER_RATE),
    _client("consume", "ours-batches", None, above=CONSUMER_RATE),
    _client("consume", "ours-iterating", None, above=CONSUMER_RATE),
    _client("consume", "ours", "ours-gevent", at_least=0.8, above=CONSUMER_RATE),
    _client("consume", "ours-aio", "ansq", at_least=5, above=CONSUMER_RATE),
    _client("produce", "ours", "gnsq", above=PRODUCER_RATE),
    _client("produce", "ours-multi", None, above=PRODUCER_RATE),
    _client("produce", "ours", "ours-gevent", at_least=0.8, above=PRODUCER_RATE),
    _client("produce", "ours-aio", "ansq", at_least=5, above=PRODUCER_RATE),
    _spark("replay", "spark-to-sink", "msg/s", (*_REPLAY, _TWO), above=4e6),
    _spark("replay-nsqd", "spark-to-nsqd", "msg/s", (*_REPLAY, _TWO), ("bench.clients.mpub",), at_least=0.7),
    _spark("replay-where", "spark-to-sink", "msg/s", (*_REPLAY, _TWO, _WHERE), above=0.5e6),
    _spark("read", "spark-to-sink", "rows/s", ("bench.clients.spark", "count", _TWO), above=2e6),
    _spark("cold-start", "spark-cold-start", "s", _COMMAND, below=10),
    _spark(
        "second-worker",
        "spark-to-sink",
        "msg/s",
        (*_REPLAY, "standalone[2]"),
        (*_REPLAY, "standalone[1]"),
        at_least=1.1,
    ),
    _spark("memory", "spark-memory", "MB", _COMMAND, messages=_FIVE_GB, below=2000),
    _spark("memory-where", "spark-memory", "MB", (*_COMMAND, _WHERE), messages=_FIVE_GB, below=3000),
    _spark("memory-ordered", "spark-memory", "MB", (*_COMMAND, "--order=time"), messages=_FIVE_GB, below=2000),
    Scenario(
        "admin-list",
        "ms",
        *_sides(Amount(seconds=30, messages=_MOST)),
        lower_is_better=True,
        below=ADMIN_LIST_P99_MS,
        details=("p50_ms", "max_ms", "cpu_s_per_round", "rss_mb", "gzip_kb"),
        work=Work("admin-list", ("nsq_apps.nsqadmin",), None),
        section="nsqadmin",
        rounds=1,
    ),
)
