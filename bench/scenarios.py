"""What is measured of our programs, mostly beside Go's, how much of it, and what it is held to."""

from bench.peers.standby import REPLICATED
from bench.run import Amount
from bench.scenario import Scenario, Side, Work
from bench.server import NSQLOOKUPD
from bench.workload import Workload

MEMORY_QUEUE = "--mem-queue-size=10000000"
DISK_QUEUE = "--mem-queue-size=0"
MILLION_QUEUE = "--mem-queue-size=1000000"
SYNC_EVERY = "--sync-every=1"
DEFAULT_QUEUE = "--mem-queue-size=10000"
CONSUMER_RATE, PRODUCER_RATE = 150_000.0, 300_000.0
ADMIN_LIST_P99_MS = 500.0
LOOKUP_P99_MS, LOOKUP_MEMORY_MB, LOOKUP_RESTART_S = 10.0, 500.0, 20.0
HEARTBEAT_US = 150.0  # 5 % of a processor for 10,000 connections with a heartbeat every 30 s


_MOST = 9_000_000  # Stays below MEMORY_QUEUE: a peer "in memory" must not overflow to its disk.
_TIMED = Amount(seconds=1.5, messages=_MOST)


def _counted(messages: int) -> Amount:
    return Amount(seconds=60, messages=messages)


def _nsqd(
    load: str, text: str, unit: str = "msg/s", amount: Amount = _TIMED, *, queue: str = DEFAULT_QUEUE,
    peer_queue: str = MEMORY_QUEUE, name: str = "", at_least: float | None = None, below: float | None = None,
    one_core: bool = False, with_tls: bool = False, quick: bool = False, least_s: float = 0,
) -> Scenario:  # fmt: skip
    """A row of our nsqd beside Go's."""
    return Scenario(
        load, unit, Side(amount, (queue,)), Side(amount, (peer_queue,)), lower_is_better=not unit.endswith("/s"),
        at_least=at_least, below=below, one_core=one_core, with_tls=with_tls, is_quick=quick, least_s=least_s,
        text=text, name=name, peer_setting="on disk" if peer_queue == DISK_QUEUE else "in memory",
    )  # fmt: skip


def _standby(acks: int, publishers: str, workload: Workload, at_least: float) -> Scenario:
    """A primary with one standby beside an nsqd alone."""
    amount = Amount(_TIMED.seconds, messages=1)
    return Scenario(
        "publish", "msg/s", Side(amount, (f"--standby-acks={acks}",)), Side(amount), at_least=at_least,
        beside_itself=True, daemon=REPLICATED, workload=workload, section="standby",
        name=f"{'mpub' if workload.batch > 1 else 'pub'}-standby-acks-{acks}",
        text=f"{publishers}, one standby with `--standby-acks={acks}`; the other: no standby",
    )  # fmt: skip


def _lookup(
    load: str, unit: str, text: str, below: float | None = None, *, quick: bool = False, rounds: int = 2
) -> Scenario:
    """A row of 200 nsqds with 500 topics of 3 channels each."""
    side = Side(Amount(3, _MOST))
    return Scenario(
        load, unit, side, side, lower_is_better=True, below=below, daemon=NSQLOOKUPD, section="nsqlookupd",
        rounds=rounds, text=text, is_quick=quick,
    )  # fmt: skip


def _tool(
    load: str, program: str, text: str, messages: int, peer_messages: int, at_least: float | None = None, *,
    unit: str = "msg/s", quick: bool = False, section: str = "tools", least_s: float = 0,
) -> Scenario:  # fmt: skip
    """One of our programs beside Go's program of that name. Go's are slower, and get less to do."""
    ours, others = (Side(_counted(count), (MEMORY_QUEUE,)) for count in (messages, peer_messages))
    work = Work(load, (f"nsq_apps.{program}",), program)
    return Scenario(
        load, unit, ours, others, lower_is_better=not unit.endswith("/s"), at_least=at_least, work=work,
        section=section, is_quick=quick, text=text, least_s=least_s,
    )  # fmt: skip


def _client(
    load: str, name: str, peer: str | None, text: str, *, at_least: float | None = None, above: float,
    quick: bool = False,
) -> Scenario:  # fmt: skip
    """Our library used as `name` beside another; the others are slow, and get less to do."""
    module = f"bench.clients.{load}"
    label = f"{load}-{name}".removesuffix("-ours") + (f"-beside-{peer}" if peer else "")
    work = Work(label, (module, name), (module, peer) if peer else None)
    peer_messages = 500_000 if peer and peer.startswith("ours") else 50_000
    ours, others = (Side(_counted(count), (MEMORY_QUEUE,)) for count in (500_000, peer_messages))
    return Scenario(
        load, "msg/s", ours, others, at_least=at_least, above=above, work=work, section="clients", is_quick=quick,
        text=text,
    )  # fmt: skip


def _spark(
    name: str, load: str, unit: str, text: str, subject: tuple[str, ...], peer: tuple[str, ...] | None = None, *,
    messages: int = 5_000_000, at_least: float | None = None, below: float | None = None, above: float | None = None,
) -> Scenario:  # fmt: skip
    """A part of the Spark pipeline, alone or beside another one, on an archive of `messages`."""
    side = Side(_counted(messages), (DEFAULT_QUEUE,))
    return Scenario(
        load, unit, side, side, lower_is_better=not unit.endswith("/s"), at_least=at_least, below=below, above=above,
        work=Work(f"spark-{name}", subject, peer), section="spark", rounds=1, text=text,
    )  # fmt: skip


def _generated(
    name: str, arguments: str, at_least: float | None = None, *, below: float | None = None, sync: bool = False
) -> Scenario:
    """One of the neutral load generator's; `below` holds the wait for an answer at a fixed rate, in ms."""
    side = Side(_TIMED, (DEFAULT_QUEUE, SYNC_EVERY) if sync else (DEFAULT_QUEUE,))
    waits = below is not None
    return Scenario(
        "neutral-wait" if waits else "neutral", "ms" if waits else "msg/s", side, side, lower_is_better=waits,
        at_least=at_least, below=below, name=name, section="neutral", generator=tuple(arguments.split()),
        text=f"`{arguments}`" + (f", nsqd with `{SYNC_EVERY}`" if sync else ""),
    )  # fmt: skip


_NSQD = (
    _nsqd("mpub", "MPUB of 200 messages, 2 connections, 8 in the pipe of each", at_least=1.2, quick=True),
    _nsqd("mpub", "the same; Go with `--mem-queue-size=0`", peer_queue=DISK_QUEUE, at_least=4),
    _nsqd("mpub-tls", "the same over TLS", at_least=0.9, with_tls=True),
    _nsqd("mpub-snappy", "the same compressed by snappy", at_least=1),
    _nsqd("mpub-deflate", "the same compressed by deflate", at_least=1),
    Scenario(
        "mpub-sync", "msg/s", Side(_TIMED, (DEFAULT_QUEUE, SYNC_EVERY)), Side(_TIMED, (DEFAULT_QUEUE,)), at_least=0.5,
        beside_itself=True, text="MPUB of 200 on 16 connections with `--sync-every=1`; the other: ours without it",
    ),
    Scenario(
        "pub-sync", "x", Side(_TIMED, (SYNC_EVERY,)), Side(_TIMED, (SYNC_EVERY,)), above=10,
        text="PUB, 64 connections that wait, `--sync-every=1`: publishes for each fsync that the disk does alone",
    ),
    _nsqd("sub", "consume and FIN a backlog, 2 connections with RDY 2500", amount=_counted(2_000_000), at_least=1.4,
          quick=True),
    Scenario(
        "sub", "msg/s", Side(_counted(2_000_000), (DEFAULT_QUEUE,)), Side(_counted(500_000), (DISK_QUEUE,)), at_least=4,
        peer_setting="on disk", text="the same; Go with `--mem-queue-size=0`",
    ),
    _nsqd("pub-pipelined", "PUB, 1 connection, 100 in the pipe", at_least=2, quick=True),
    _nsqd("pub-single", "PUB, 1 connection that waits, client and nsqd on one processor", at_least=0.9, one_core=True,
          quick=True),
    _nsqd("http-pub", "POST /pub, 16 connections that wait", "req/s", at_least=0.9, quick=True),
    _nsqd("ten-channels", "MPUB until all of 10 channels have every message", amount=_counted(1_000_000), at_least=3),
    _nsqd("latency", "a lone message every 10 ms, from PUB to the consumer, median", "us", below=1000),
    _nsqd("memory", "resident memory with 1,000,000 messages in one channel, `--mem-queue-size=1000000`", "MB",
          _counted(1_000_000), queue=MILLION_QUEUE, peer_queue=MILLION_QUEUE, below=300),
    _nsqd("idle-connections", "resident memory of an idle connection, of 5,000", "KB", below=20),
    _nsqd("idle-heartbeats", "processor time for each heartbeat of 10,000 idle connections", "us", below=HEARTBEAT_US,
          least_s=10),
)  # fmt: skip

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

_WAITING = ("16 publishers that wait for each answer", Workload(connections=16))
_BATCHES = ("MPUB of 200 on 16 connections", Workload(connections=16, batch=200))

_LOOKUPD = (
    _lookup("lookup-register", "s", "registering all, each nsqd waits for each answer"),
    _lookup("lookup-register-pipelined", "s", "the same, each nsqd sends all and then reads", quick=True),
    _lookup("lookup", "ms", "99th percentile of /lookup, 50 clients without a pause", LOOKUP_P99_MS),
    _lookup("lookup-paced", "ms", "the same, each client asks ten times a second", LOOKUP_P99_MS),
    _lookup("lookup-memory", "MB", "resident memory when all is registered", LOOKUP_MEMORY_MB),
    _lookup("lookup-restart", "s", "from a restart until a client sees all, clients without a pause", LOOKUP_RESTART_S,
            rounds=1),
    _lookup("lookup-restart-paced", "s", "the same, each client asks ten times a second", LOOKUP_RESTART_S),
)  # fmt: skip

_TOOLS = (
    _tool("to-file", "nsq_to_file", "a backlog into a file, 2500 in flight", 1_000_000, 100_000, 1, quick=True),
    _tool("to-file-gzip", "nsq_to_file", "the same with `--gzip`", 1_000_000, 100_000, 1),
    _tool("tail", "nsq_tail", "a backlog to standard output, 2500 in flight", 1_000_000, 100_000, 1),
    _tool("to-nsq", "to_nsq", "lines of a file to nsqd, from its start", 1_000_000, 20_000, 2),
    _tool("to-http", "nsq_to_http", "a backlog as POSTs to an HTTP server, 100 at a time", 50_000, 50_000),
    _tool("to-nsqd", "nsq_to_nsq", "a backlog to another nsqd, 2500 in flight", 200_000, 100_000),
    _tool("stat", "nsq_stat", "processor time of ten reports about a channel, with its start", 1000, 1000, unit="s"),
)

_CLIENTS = (
    _client("consume", "ours", "gnsq", "a handler that does nothing", at_least=5, above=CONSUMER_RATE, quick=True),
    _client("consume", "ours", "pynsq", "the same", at_least=5, above=CONSUMER_RATE),
    _client("consume", "ours-batches", None, "a `batch_handler`", above=CONSUMER_RATE),
    _client("consume", "ours-iterating", None, "a loop over messages", above=CONSUMER_RATE),
    _client("consume", "ours", "ours-gevent", "a handler that does nothing; the other: on gevent", at_least=0.8,
            above=CONSUMER_RATE),
    _client("consume", "ours-aio", "ansq", "a coroutine for each message; ansq: a loop over messages", at_least=5,
            above=CONSUMER_RATE),
    _client("produce", "ours", "gnsq", "`publish_soon`; gnsq: 100 greenlets that wait", above=PRODUCER_RATE,
            quick=True),
    _client("produce", "ours-multi", None, "`multi_publish_soon` of 200", above=PRODUCER_RATE),
    _client("produce", "ours", "ours-gevent", "`publish_soon`; the other: on gevent", at_least=0.8,
            above=PRODUCER_RATE),
    _client("produce", "ours-aio", "ansq", "`publish_soon` for asyncio; ansq: 100 tasks that wait", at_least=5,
            above=PRODUCER_RATE),
)  # fmt: skip

_ADMIN = (
    _tool("admin-topic", "nsqadmin", "99th percentile of GET /api/topics/TOPIC", 1, 1, unit="ms", section="nsqadmin",
          least_s=5),
    _tool("admin-counter", "nsqadmin", "99th percentile of GET /api/counter, for which both ask all nsqds: 35 MB", 1, 1,
          unit="ms", section="nsqadmin", least_s=5),
    _tool("admin-memory", "nsqadmin", "resident memory after 5 of both; ours has a history too", 1, 1, unit="MB",
          section="nsqadmin"),
    Scenario(
        "admin-list", "ms", Side(Amount(30, 1)), Side(Amount(30, 1)), lower_is_better=True, below=ADMIN_LIST_P99_MS,
        work=Work("admin-list", ("nsq_apps.nsqadmin",), None), section="nsqadmin", rounds=1, least_s=10,
        text="99th percentile of the page's list of all topics, with gzip",
    ),
)  # fmt: skip

_REPLAY = ("bench.clients.spark", "replay")
_COMMAND = ("nsq_apps.spark_replay", "--master=local[2]", "--conf=spark.driver.memory=1g")
_TWO = "local[2]"
_WHERE = "--where=json.level = 'error'"
_FIVE_GB = 21_500_000

_SPARK = (
    _spark("replay", "spark-to-sink", "msg/s", "an archive into a sink that only counts", (*_REPLAY, _TWO), above=4e6),
    _spark("replay-nsqd", "spark-to-nsqd", "msg/s", "the same into nsqd; the other: the load of `mpub`",
           (*_REPLAY, _TWO), ("bench.clients.mpub",), at_least=0.7),
    _spark("replay-where", "spark-to-sink", "msg/s", "messages read with `--where` on a field of JSON",
           (*_REPLAY, _TWO, _WHERE), messages=2_000_000, above=0.5e6),
    _spark("read", "spark-to-sink", "rows/s", "counting the rows of the data source",
           ("bench.clients.spark", "count", _TWO), messages=2_000_000, above=2e6),
    _spark("cold-start", "spark-cold-start", "s", "from the start of `spark-replay` to the first message", _COMMAND,
           messages=100_000, below=10),
    _spark("second-worker", "spark-to-sink", "msg/s", "a standalone cluster with two workers; the other: with one",
           (*_REPLAY, "standalone[2]"), (*_REPLAY, "standalone[1]"), at_least=1.1),
    _spark("memory", "spark-memory", "MB", "peak of `spark-replay` and its processes, 5 GB with 1 GB of heap", _COMMAND,
           messages=_FIVE_GB, below=2000),
    _spark("memory-where", "spark-memory", "MB", "the same with `--where`", (*_COMMAND, _WHERE), messages=_FIVE_GB,
           below=3000),
    _spark("memory-ordered", "spark-memory", "MB", "the same with `--order=time`", (*_COMMAND, "--order=time"),
           messages=_FIVE_GB, below=2000),
)  # fmt: skip

SCENARIOS = (
    *_NSQD,
    *_GENERATED,
    *(_standby(acks, *how, at_least) for acks, at_least in ((0, 0.6), (1, 0.45)) for how in (_WAITING, _BATCHES)),
    *_LOOKUPD,
    *_TOOLS,
    *_CLIENTS,
    *_ADMIN,
    *_SPARK,
)
