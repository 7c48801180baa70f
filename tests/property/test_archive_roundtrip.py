"""Whatever is written into an archive is read from it: each message once, in any splits, from any place on."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyarrow")

from nsq_spark.archive.chunk import MOST_BYTES, MOST_MESSAGES
from nsq_spark.archive.listing import Hints
from nsq_spark.archive.splits import Requested
from nsqd_py.stores.compression import CODECS
from tests.property.test_archive_damage import file_of
from tests.support import archives
from tests.support.examples import examples
from tests.unit.to_file_fakes import FakeBatch

# What tempts a reader: magic numbers, newlines, JSON, sizes.
TEMPTING = [
    b"NSQr",
    b"NSQf",
    b"\n",
    b'{"timestamp":1,"id":"',
    b'\\u00e9"',
    b"\0\0\0\1",
    b"\x1f\x8b\x08",
    b"\xff",
]
BODIES = (
    st.binary(min_size=1, max_size=60)
    | st.sampled_from(TEMPTING)
    | st.integers(1, 3000).map(lambda n: b"x" * n)
)
NAMES = st.from_regex(r"[a-zA-Z0-9._-]{1,8}", fullmatch=True)
TIMES = st.integers(0, 2**62) | st.integers(archives.BASE_NS, archives.BASE_NS + 50)
SPLIT_BYTES = st.integers(1, 4000)
SOME = settings(max_examples=examples(35), deadline=None)


def message_of(topic: str, channel: str, nsqd: str) -> st.SearchStrategy[archives.Message]:
    ids = st.integers(0, 2**64 - 1).map(lambda number: f"{number:016x}")
    return st.builds(
        archives.Message,
        BODIES,
        st.just(topic),
        st.just(channel),
        TIMES,
        st.integers(0, 65535),
        ids,
        st.just(nsqd),
    )


BATCHES = st.lists(
    st.tuples(NAMES, NAMES, st.sampled_from(["a:4150", "b:4150"])).flatmap(
        lambda names: st.lists(message_of(*names), min_size=1, max_size=6)
    ),
    min_size=1,
    max_size=8,
)
TOGETHER = st.lists(BODIES, min_size=1, max_size=8)
PUBLISHED = st.lists(
    st.builds(archives.Published, TOGETHER, TIMES, st.sampled_from([0, 5])), min_size=1, max_size=8
)
LINES = st.lists(BODIES.filter(lambda body: b"\n" not in body), min_size=1, max_size=30)
COMPRESSIONS = st.sampled_from(["none", "gzip", "zstd"])


def topic_log(published: list[archives.Published]) -> archives.TopicLogFile:
    log = archives.TopicLogFile()
    for one in published:
        log.add(one)
    return log


def check(path: Path, expected: list[archives.Message], split_bytes: int) -> None:
    """Whole and in splits, with positions that rise."""
    assert archives.read_messages(archives.splits_of(path)) == expected
    splits = archives.splits_of(path, split_bytes)
    assert archives.read_messages(splits) == expected
    positions = [position for chunk in archives.chunks_of(splits) for position in chunk.positions.tolist()]
    assert positions == sorted(set(positions))


@SOME
@given(BATCHES, SPLIT_BYTES, st.sampled_from([None, 3]), COMPRESSIONS)
def test_framed(
    batches: list[list[archives.Message]], split_bytes: int, zstd_level: int | None, compression: str
) -> None:
    expected = [message for batch in batches for message in batch]
    with file_of(
        "any.framed", archives.compressed(archives.framed(batches, zstd_level), compression, 3)
    ) as path:
        check(path, expected, split_bytes)


@SOME
@given(PUBLISHED, SPLIT_BYTES, COMPRESSIONS, st.integers(0, 300))
def test_topic_log(
    published: list[archives.Published], split_bytes: int, compression: str, zeros: int
) -> None:
    log = topic_log(published)
    with file_of(log.name, archives.compressed(bytes(log.data) + bytes(zeros), compression, 2)) as path:
        check(path, log.messages, split_bytes)


@SOME
@given(LINES, SPLIT_BYTES, COMPRESSIONS, st.integers(1, 5))
def test_lines(bodies: list[bytes], split_bytes: int, compression: str, pieces: int) -> None:
    data = b"".join(body + b"\n" for body in bodies)
    expected = [archives.Message(body, "orders", None, None, None, None, None) for body in bodies]
    with file_of("orders.host.log", archives.compressed(data, compression, pieces)) as path:
        for split_bytes_of_one in (1 << 30, split_bytes):
            splits = archives.splits_of(path, split_bytes_of_one, Hints(format="lines"))
            assert archives.read_messages(splits) == expected


def as_batch(some: list[archives.Message]) -> FakeBatch:
    """What nsq-to-file's formats write."""
    batch = FakeBatch(*[message.body for message in some], nsqd=some[0].nsqd or "")
    batch.channel = "archive"
    batch.topic = "orders"
    batch.ids = [message.known_id for message in some]
    batch.timestamps_ns = [message.known_ns for message in some]
    batch.attempts = [message.known_attempts for message in some]
    return batch


ONE_TOPIC = st.lists(
    st.sampled_from(["a:4150", "b:4150"]).flatmap(
        lambda nsqd: st.lists(message_of("orders", "archive", nsqd), min_size=1, max_size=6)
    ),
    min_size=1,
    max_size=6,
)


@SOME
@given(
    ONE_TOPIC, SPLIT_BYTES, st.sampled_from(["jsonl", "framed", "parquet"]), st.sampled_from(sorted(CODECS))
)
def test_formats_of_nsq_to_file(
    batches: list[list[archives.Message]], split_bytes: int, name: str, codec_name: str
) -> None:
    from nsq_tools.to_file.formats import FORMATS

    form, codec = FORMATS[name], CODECS[codec_name]
    if codec_name not in form.codecs:
        return
    encoder = form.encoder(codec, 1, lambda warning: None)
    written = list(map(as_batch, batches))
    half = len(written) // 2
    parts = [encoder.encode(some).data for some in (written[:half], written[half:]) if some]  # type: ignore[arg-type]
    with file_of(f"orders.host{form.suffix}", encoder.header + b"".join(parts)) as path:
        if form.convert is not None:
            made = path.with_suffix(".made")
            form.convert(path, made, codec_name)
            path = made
        found = archives.read_messages(archives.splits_of(path, split_bytes))
    # `framed`, and so what is made of it, keeps together what came from one nsqd.
    expected = []
    for some in (batches[:half], batches[half:]):
        together = [message for batch in some for message in batch]
        names = list(dict.fromkeys(message.nsqd for message in together))
        expected += (
            together if name == "jsonl" else sorted(together, key=lambda message: names.index(message.nsqd))
        )
    assert found == expected


@SOME
@given(BATCHES, TIMES, TIMES, NAMES)
def test_only_what_is_wanted(
    batches: list[list[archives.Message]], one_ns: int, other_ns: int, name: str
) -> None:
    start_ns, end_ns = sorted((one_ns, other_ns))
    topics = frozenset({name, batches[0][0].topic})
    requested = Requested(topics, start_ns=start_ns, end_ns=end_ns)
    everything = [message for batch in batches for message in batch]
    with file_of("any.framed", archives.framed(batches)) as path:
        found = archives.read_messages(archives.splits_of(path), requested)
    assert found == [m for m in everything if m.topic in topics and start_ns <= m.known_ns < end_ns]


@SOME
@given(PUBLISHED, TIMES, TIMES)
def test_only_what_was_published_in_time(
    published: list[archives.Published], one_ns: int, other_ns: int
) -> None:
    start_ns, end_ns = sorted((one_ns, other_ns))
    log = topic_log(published)
    with file_of(log.name, bytes(log.data)) as path:
        found = archives.read_messages(archives.splits_of(path), Requested(start_ns=start_ns, end_ns=end_ns))
    assert found == [message for message in log.messages if start_ns <= message.known_ns < end_ns]


@settings(max_examples=examples(8), deadline=None)
@given(st.integers(1, 120_000), st.integers(1, 3))
def test_chunks_are_bounded(count: int, size: int) -> None:
    log = topic_log(
        [archives.Published([b"x" * size] * count), archives.Published([b"y" * (MOST_BYTES + 1), b"z"])]
    )
    with file_of(log.name, bytes(log.data)) as path:
        chunks = list(archives.chunks_of(archives.splits_of(path)))
    assert sum(chunk.count for chunk in chunks) == count + 2
    assert all(chunk.count <= MOST_MESSAGES for chunk in chunks)
    assert all(chunk.payload.bytes_of(0, chunk.count) <= MOST_BYTES or chunk.count == 1 for chunk in chunks)


def test_pack_of_messages_larger_than_a_block() -> None:
    """Records of many sizes around the 4 MiB that are read at a time, which are read alone or together."""
    sizes = (10, 3_000_000, 2_000_000, 5_000_000, 10, 4_194_304 - 60, 1, 1)
    log = topic_log([archives.Published([b"x" * size, b"y"]) for size in sizes])
    with file_of(log.name, bytes(log.data)) as path:
        check(path, log.messages, 1_000_000)
