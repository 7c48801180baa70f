"""The rows: one section for each question of docs/performance.md."""

from dataclasses import dataclass

_IN_MEMORY = ("--mem-queue-size=10000000",)
_ON_DISK = ("--mem-queue-size=0",)
_DEFAULT = ("--mem-queue-size=10000",)  # Go's nsqd reserves the memory of a queue when it creates it.
_SYNCED = ("--sync-every=1",)


@dataclass(frozen=True, slots=True)
class Row:
    """One row: a load of `measure.py` and what it gets, and the flags of both sides.

    flags   `{store}` in them is the URL of a new store
    itself  the other side is ours too, with `peer_flags`; otherwise it is the nsqd of --peer-nsqd
    """

    section: str
    name: str
    text: str
    load: str = "publish"
    arguments: str = ""
    unit: str = "msg/s"
    flags: tuple[str, ...] = ()
    peer_flags: tuple[str, ...] = _IN_MEMORY
    itself: bool = False
    has_standby: bool = False

    @property
    def lower_is_better(self) -> bool:
        return not self.unit.endswith("/s")


ROWS = (
    *(
        Row("publishing", f"pub-{count}", f"PUB, connections that wait: {count}", arguments=f"-conns {count}")
        for count in (1, 16, 64, 500)
    ),
    Row(
        "publishing", "pub-pipelined", "PUB, 4 connections, 100 in the pipe", arguments="-conns 4 -window 100"
    ),
    *(
        Row(
            "publishing",
            f"mpub-{batch}",
            f"MPUB of {batch}, 4 connections, each waits",
            arguments=f"-mode mpub -conns 4 -batch {batch}",
        )
        for batch in (10, 100, 1000)
    ),
    Row(
        "consuming",
        "pub-16-consumed",
        "PUB, 16 connections; 4 consumers with RDY 100",
        "consume",
        "-conns 16 -consumers 4 -rdy 100",
    ),
    Row(
        "consuming",
        "mpub-consumed",
        "MPUB of 200, 4 connections; 2 consumers with RDY 2500",
        "consume",
        "-mode mpub -conns 4 -consumers 2",
    ),
    Row(
        "consuming",
        "mpub-10-channels",
        "MPUB of 200, 2 connections; 10 channels with a consumer each",
        "consume",
        "-mode mpub -conns 2 -consumers 10 -channels 10",
    ),
    Row("large", "pub-64k", "PUB of 64 KB, 16 connections", arguments="-conns 16 -size 65536"),
    Row("large", "pub-1m", "PUB of 1 MB, 16 connections", arguments="-conns 16 -size 1000000"),
    Row(
        "large",
        "mpub-64k-consumed",
        "MPUB of 10 of 64 KB, 2 connections; 2 consumers with RDY 100",
        "consume",
        "-mode mpub -conns 2 -batch 10 -size 65536 -consumers 2 -rdy 100",
    ),
    *(
        Row(
            "topics",
            f"topics-{count}",
            f"PUB to {count:,} topics in turn, 16 connections",
            arguments=f"-conns 16 -topics {count}",
            peer_flags=_DEFAULT,
        )
        for count in (1, 100, 1000, 10_000)
    ),
    *(
        Row(
            "durability",
            f"synced-{count}",
            f"PUB, `--sync-every=1`, connections that wait: {count}",
            arguments=f"-conns {count}",
            flags=_SYNCED,
            peer_flags=(),
            itself=True,
        )
        for count in (1, 16, 64)
    ),
    *(
        Row(
            "durability",
            f"standby-acks-{acks}",
            f"PUB, 16 connections, a standby with `--standby-acks={acks}`; the other: ours alone",
            arguments="-conns 16",
            flags=(f"--standby-acks={acks}",),
            peer_flags=(),
            itself=True,
            has_standby=True,
        )
        for acks in (0, 1)
    ),
    *(
        Row(
            "store",
            f"store-acks-0-{count}",
            f"PUB, connections that wait: {count}, `--store` with acks 0; the other: ours without a store",
            arguments=f"-conns {count}",
            flags=("--store={store}",),
            peer_flags=(),
            itself=True,
        )
        for count in (16, 64)
    ),
    Row("size", "memory-empty", "resident memory without messages", "memory", "0", "MB"),
    Row("size", "memory-1m", "the same with 1,000,000 messages in a topic", "memory", "1000000", "MB"),
    Row(
        "size",
        "start-empty",
        "from the start to the first OK, empty data path",
        "start",
        "0",
        "s",
        (),
        _ON_DISK,
    ),
    Row(
        "size",
        "start-100mb",
        "the same after SIGKILL, 100 MB in the log",
        "start",
        "100000",
        "s",
        (),
        _ON_DISK,
    ),
    Row("spark", "spark-read", "counting the rows of an archive, `local[2]`", "spark", "read", "rows/s"),
    Row("spark", "spark-write", "writing 200,000 rows to nsqd, `local[2]`", "spark", "write", "rows/s"),
)
