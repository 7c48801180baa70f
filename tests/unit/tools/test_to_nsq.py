"""The pure parts of to-nsq: records, the delimiter, the rate, limits of nsqd, what is told."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsq_apps.to_nsq import main
from nsq_tools.to_nsq.progress import Progress, progress_line, size_text, summary
from nsq_tools.to_nsq.publisher import RateLimit
from nsq_tools.to_nsq.records import Limits, RecordBatch, RecordReader, Refusal, halves, parse_delimiter

Numbered = list[tuple[bytes, int]]


def numbered(*batches: RecordBatch) -> Numbered:
    return [pair for batch in batches for pair in zip(batch.records, batch.lines, strict=True)]


def batch_of(*records: bytes) -> RecordBatch:
    return RecordBatch(records, range(1, len(records) + 1))


# --- records


def read(delimiter: bytes, *chunks: bytes) -> Numbered:
    reader = RecordReader(delimiter)
    return numbered(*map(reader.feed, chunks), reader.finish())


def test_a_record_may_come_in_many_chunks() -> None:
    assert read(b"\n", b"o", b"n", b"e\ntwo\nth", b"ree\n") == [(b"one", 1), (b"two", 2), (b"three", 3)]


def test_empty_records_are_left_out_and_counted() -> None:
    assert read(b"\n", b"\n\none\n", b"\n", b"two\n\n") == [(b"one", 3), (b"two", 5)]


def test_a_record_is_there_as_soon_as_its_delimiter_is() -> None:
    reader = RecordReader(b"\n")
    assert numbered(reader.feed(b"one\ntw")) == [(b"one", 1)]
    assert reader.unended_bytes == 2
    assert numbered(reader.feed(b"o\n")) == [(b"two", 2)]
    assert reader.unended_bytes == 0


def test_the_last_record_needs_no_delimiter_and_keeps_its_last_byte() -> None:
    assert read(b"\n", b"one\ntwo") == [(b"one", 1), (b"two", 2)]


def test_the_end_of_a_line_is_no_part_of_the_last_of_other_records() -> None:
    assert read(b",", b"one,two,three\n") == [(b"one", 1), (b"two", 2), (b"three", 3)]
    assert read(b",", b"one,\n") == [(b"one", 1)]
    assert read(b",", b"a\nb,c\n\n") == [(b"a\nb", 1), (b"c\n", 2)]


@given(st.lists(st.binary(max_size=4), max_size=20), st.data())
def test_chunks_make_no_difference(records: list[bytes], data: st.DataObject) -> None:
    whole = b";".join(records)
    if whole.endswith(b"\n"):
        whole += b"x"
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=8)))
    chunks = [whole[start:end] for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    expected = [(record, line) for line, record in enumerate(whole.split(b";"), 1) if record]
    assert read(b";", *chunks) == expected


def test_a_record_that_nobody_takes_is_not_kept_in_memory() -> None:
    reader = RecordReader(b"\n", max_record_bytes=10)
    found = [*map(reader.feed, (b"small\n12345", b"67890", b"12345", b"678\nnext\n")), reader.finish()]
    assert numbered(*found) == [(b"small", 1), (b"next", 3)]
    assert reader.take_too_large() == [Refusal(2, 18, "to-nsq takes no more than 10")]


def test_the_last_record_may_be_one_that_nobody_takes() -> None:
    reader = RecordReader(b"\n", max_record_bytes=4)
    assert numbered(reader.feed(b"123"), reader.feed(b"45"), reader.finish()) == []
    assert reader.take_too_large() == [Refusal(1, 5, "to-nsq takes no more than 4")]


# --- the delimiter


@pytest.mark.parametrize(
    ("text", "delimiter"),
    [
        ("\n", b"\n"),
        (",", b","),
        ("\\", b"\\"),
        (r"\n", b"\n"),
        (r"\t", b"\t"),
        (r"\0", b"\0"),
        (r"\\", b"\\"),
        (r"\x1e", b"\x1e"),
        ("\udcff", b"\xff"),
    ],
)
def test_a_delimiter_is_a_byte_or_an_escape(text: str, delimiter: bytes) -> None:
    assert parse_delimiter(text) == delimiter


@pytest.mark.parametrize("text", ["", ",,", "é", r"\x1", r"\x1ee", r"\q"])
def test_a_delimiter_is_a_single_byte(text: str) -> None:
    with pytest.raises(ValueError, match="--delimiter must be a single byte"):
        parse_delimiter(text)


# --- the rate


def test_the_first_message_leaves_at_once_and_the_second_in_its_time() -> None:
    rate = RateLimit(10, now_s=0)
    assert rate.take(5, now_s=0) == 1
    assert rate.wait_s() == pytest.approx(0.1)
    assert rate.take(5, now_s=0.05) == 0
    assert rate.wait_s() == pytest.approx(0.05)
    assert rate.take(5, now_s=0.11) == 1


def test_no_more_is_saved_up_than_for_one_second() -> None:
    rate = RateLimit(10, now_s=0)
    assert rate.take(100, now_s=60) == 10
    assert rate.take(100, now_s=60) == 0


@given(st.integers(1, 1000), st.lists(st.floats(0.0001, 3), min_size=1, max_size=50))
def test_no_more_leaves_than_the_rate_allows(per_second: int, pauses_s: list[float]) -> None:
    rate = RateLimit(per_second, now_s=0)
    taken, now_s = rate.take(10_000, 0), 0.0
    for pause_s in pauses_s:
        now_s += pause_s
        taken += rate.take(10_000, now_s)
        assert taken <= 1 + now_s * per_second + 1e-6


def test_whoever_waits_as_told_gets_one() -> None:
    rate = RateLimit(3, now_s=0)
    assert rate.take(1, 0) == 1
    now_s = 0.0
    for _ in range(100):
        now_s += rate.wait_s() + 1e-9
        assert rate.take(1, now_s) == 1


# --- the limits of nsqd


def test_a_batch_is_cut_to_bodies_that_fit() -> None:
    limits = Limits(max_body_bytes=4 + 2 * (4 + 3))
    parts, refused = limits.fit(batch_of(b"aaa", b"bbb", b"ccc", b"d", b"e", b"f"))
    assert [list(part.records) for part in parts] == [[b"aaa", b"bbb"], [b"ccc", b"d"], [b"e", b"f"]]
    assert [list(part.lines) for part in parts] == [[1, 2], [3, 4], [5, 6]]
    assert refused == []


def test_a_record_larger_than_a_body_goes_alone() -> None:
    parts, _ = Limits(max_body_bytes=20).fit(batch_of(b"a", b"b" * 100, b"c"))
    assert [list(part.records) for part in parts] == [[b"a"], [b"b" * 100], [b"c"]]


@pytest.mark.parametrize("command", ["PUB", "MPUB"])
def test_what_is_too_large_is_learned_from_a_refusal(command: str) -> None:
    limits = Limits(max_body_bytes=1000)
    assert limits.learn(f"E_BAD_MESSAGE {command} message too big 6 > 5")
    assert not limits.learn(f"E_BAD_MESSAGE {command} message too big 7 > 5")
    parts, refused = limits.fit(batch_of(b"12345", b"123456", b"1"))
    assert numbered(*parts) == [(b"12345", 1), (b"1", 3)]
    assert refused == [Refusal(2, 6, "it takes no more than 5")]


def test_a_limit_of_bodies_is_learned_too() -> None:
    limits = Limits(max_body_bytes=1000)
    assert limits.learn("E_BAD_BODY MPUB body too big 34 > 14")
    assert not limits.learn("E_BAD_BODY MPUB body too big 34 > 14")
    assert [len(part.records) for part in limits.fit(batch_of(b"a", b"b", b"c", b"d")).parts] == [2, 2]


def test_other_refusals_teach_nothing() -> None:
    assert not Limits(max_body_bytes=1000).learn("E_BAD_TOPIC MPUB topic name is not valid")


def test_without_a_reason_each_half_is_tried() -> None:
    assert [numbered(part) for part in halves(batch_of(b"a", b"b", b"c")).parts] == [[(b"a", 1)], [(b"b", 2), (b"c", 3)]]


@given(st.lists(st.binary(min_size=1, max_size=30), max_size=40), st.integers(5, 60), st.integers(1, 30))
def test_nothing_is_lost_by_cutting(records: list[bytes], max_body_bytes: int, max_message_bytes: int) -> None:
    limits = Limits(max_body_bytes)
    limits.learn(f"message too big 99 > {max_message_bytes}")
    parts, refused = limits.fit(batch_of(*records))
    kept = numbered(*parts)
    assert [line for _, line in kept] == [n for n, record in enumerate(records, 1) if len(record) <= max_message_bytes]
    assert all(records[line - 1] == record for record, line in kept)
    assert [found.line for found in refused] == [n for n, r in enumerate(records, 1) if len(r) > max_message_bytes]
    bodies = [4 + sum(4 + len(record) for record in part.records) for part in parts]
    assert all(size <= max_body_bytes or len(part.records) == 1 for size, part in zip(bodies, parts, strict=True))


# --- what is told

HALF = Progress(read_bytes=5_000_000, total_bytes=10_000_000, messages=25_000, elapsed_s=10.0)


def test_the_progress_of_a_file_has_a_bar() -> None:
    line = progress_line(HALF, 200)
    assert line == "━" * 12 + "─" * 12 + "  50%  5.0 MB of 10.0 MB  25,000 messages  2,500/s  0:10 left"


def test_the_progress_of_a_pipe_has_no_end_to_measure_by() -> None:
    assert progress_line(HALF._replace(total_bytes=None), 200) == "5.0 MB  25,000 messages  2,500/s"


@pytest.mark.parametrize("columns", [0, 1, 20, 79])
def test_a_progress_line_does_not_wrap(columns: int) -> None:
    assert len(progress_line(HALF, columns)) <= columns


def test_a_progress_line_cuts_no_figure() -> None:
    whole = set(progress_line(HALF, 200).split("  "))
    for columns in range(100):
        assert set(progress_line(HALF, columns).split("  ")) <= whole | {""}
    assert progress_line(HALF, 20) == "5.0 MB of 10.0 MB"


@pytest.mark.parametrize(
    ("size_bytes", "text"), [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (999_999, "1.0 MB"), (2.5e15, "2500.00 TB")]
)
def test_sizes_are_for_people(size_bytes: float, text: str) -> None:
    assert size_text(size_bytes) == text


def test_the_summary_says_how_many_where_and_how_fast() -> None:
    assert summary(HALF, ["a:1", "b:2"]) == "published 25,000 messages to a:1, b:2: 5.0 MB in 10.00 s (2,500/s)"
    one = Progress(7, None, 1, 0.004)
    assert summary(one, ["a:1"]) == "published 1 message to a:1: 7 B in 0.00 s"


# --- how it is used


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--nsqd-tcp-address=127.0.0.1:4150"], "--topic required"),
        (["--topic=t"], "--nsqd-tcp-address required"),
        (["--topic=t", "--nsqd-tcp-address=nowhere"], '--nsqd-tcp-address: "nowhere" has no port'),
        (["--topic=t t", "--nsqd-tcp-address=h:1"], "--topic 't t' is not a valid name"),
        (["--topic=t", "--nsqd-tcp-address=h:1", "--delimiter=ab"], "--delimiter must be a single byte"),
        (["--topic=t", "--nsqd-tcp-address=h:1", "--producer-opt=nothing,1"], "--producer-opt: "),
        (["--topic=t", "--nsqd-tcp-address=h:1", "--retry-timeout=5ms"], "--retry-timeout must be at least 1s"),
    ],
)
def test_a_wrong_command_line_is_refused(flags: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(flags) == 2
    out, err = capsys.readouterr()
    assert err.startswith(f"to-nsq: {complaint}")
    assert (out, err.count("\n")) == ("", 1)
