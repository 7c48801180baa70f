"""A search through the log of a topic, piece by piece."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import count

import pytest

from nsqadmin_py.messages.filters import MessageFilter
from nsqadmin_py.messages.json_path import BadFilter
from nsqadmin_py.messages.log_search import BadLog, LogPage, LogSearch, LogSource, body_at, search_back
from nsqd_py.diskqueue.records import FileHeader, encode_record
from nsqd_py.protocol.batch import Batch
from tests.unit.fakes import make_batch

ALL = MessageFilter()


def log_of(batches: Iterable[Batch], end: int = 0) -> bytes:
    found = list(batches)
    header = FileHeader(0, found[0].first_seq if found else end, 0)
    return header.encode() + b"".join(encode_record(batch, 0) for batch in found)


class Nsqd:
    """Answers /topic/read with a record at a time."""

    def __init__(self, *batches: Batch) -> None:
        self.batches = batches
        self.asked: list[dict[str, str]] = []

    def read(self, query: dict[str, str]) -> bytes:
        self.asked.append(query)
        seq = int(query.get("seq", "0"))
        return log_of([batch for batch in self.batches if batch.end_seq > seq][:1], self.batches[-1].end_seq)


def numbered(total: int, size: int) -> Nsqd:
    """Batches of `size` messages "0", "1" …"""
    return Nsqd(
        *(make_batch(low, *(b"%d" % n for n in range(low, low + size))) for low in range(0, total, size))
    )


def at_once(work: Callable[[], None]) -> None:
    work()


def search(
    nsqd: Nsqd,
    wanted: MessageFilter = ALL,
    limit: int = 100,
    seq: int = 0,
    is_late: Callable[[], bool] = lambda: False,
) -> LogSearch:
    found = LogSearch(LogSource(nsqd.read, is_late, at_once), wanted, limit)
    found.run({"seq": str(seq)})
    return found


def test_all_fields_of_a_filter_have_to_fit() -> None:
    nsqd = Nsqd(make_batch(0, b'{"id":1,"a":"x"}', b'{"id":2,"a":"xy"}', b"\xffxy", b'{"id":3,"a":"y"}'))
    assert [row["seq"] for row in search(nsqd, MessageFilter("x")).page.messages] == [0, 1, 2]
    assert [row["seq"] for row in search(nsqd, MessageFilter("", r"x?y")).page.messages] == [1, 2, 3]
    assert [row["seq"] for row in search(nsqd, MessageFilter("x", "y", "$.id > 1")).page.messages] == [1]
    assert search(nsqd, MessageFilter("none")).page.searched_count == 4


def test_a_search_ends_when_it_is_late_and_goes_on() -> None:
    nsqd = Nsqd(*(make_batch(low, b"x" * 100_000, b"y" * 100_000) for low in range(0, 20, 2)))
    looks = count()
    found = search(nsqd, MessageFilter("z"), is_late=lambda: next(looks) >= 3)
    assert not found.page.is_end
    assert 0 < found.page.next_seq < 20
    assert (
        search(nsqd, MessageFilter("z"), seq=found.page.next_seq).page.searched_count
        == 20 - found.page.next_seq
    )


def test_bodies_that_are_long_or_no_text() -> None:
    nsqd = Nsqd(make_batch(0, b"\xff" * 100_000, b"x" * 70_000, b"ok\0"))
    first, second, third = search(nsqd).page.messages
    assert (first["size"], first["is_cut"], len(first["body_base64"])) == (100_000, True, 65536)
    assert (second["size"], second["is_cut"], len(second["body"])) == (70_000, True, 65536)
    assert (third["size"], "is_cut" in third, third["body"]) == (3, False, "ok\0")


def test_a_page_takes_bounded_memory() -> None:
    nsqd = Nsqd(*(make_batch(n, b"x" * 65536) for n in range(100)))
    found = search(nsqd)
    assert len(found.page.messages) == found.page.next_seq == 64
    assert len(search(nsqd, seq=64).page.messages) == 36


def back(
    nsqd: Nsqd, wanted: MessageFilter = ALL, limit: int = 10, end: int = 1000, looks: int = 1 << 30
) -> LogPage:
    left = iter(range(looks))
    return search_back(LogSource(nsqd.read, lambda: next(left, None) is None, at_once), wanted, limit, end)


@pytest.mark.parametrize("size", [1, 5, 250])
def test_a_filter_is_looked_for_further_and_further_back(size: int) -> None:
    nsqd = numbered(1000, size)
    page = back(nsqd, MessageFilter("11"), limit=3)
    assert ([row["seq"] for row in page.messages], page.prev_seq) == ([711, 811, 911], 711)
    page = back(nsqd, MessageFilter("11"), limit=100, end=page.prev_seq)
    assert [row["seq"] for row in page.messages] == [n for n in range(711) if "11" in str(n)]
    assert (page.is_start, page.searched_count) == (True, 711)


def test_a_page_says_from_when_to_when_it_has_looked() -> None:
    nsqd = numbered(200, 1)
    for batch in nsqd.batches:
        batch.timestamp_ns = 1000 + batch.first_seq
    page = search(nsqd, MessageFilter("9"), limit=2, seq=10).page
    assert (page.first_timestamp, page.last_timestamp) == (1010, 1029)
    page = back(nsqd, limit=3, end=200)
    assert (page.first_timestamp, page.last_timestamp) == (1197, 1199)
    page = back(nsqd, MessageFilter("none"), end=150)
    assert (page.first_timestamp, page.is_start) == (1000, True)


@pytest.mark.parametrize("looks", [0, 1, 2, 5, 9])
def test_a_search_backwards_that_is_late_goes_on_without_a_gap(looks: int) -> None:
    nsqd = Nsqd(*(make_batch(seq, b"%d" % seq + b"x" * 70_000) for seq in range(200)))
    first = back(nsqd, limit=1000, end=200, looks=looks)
    second = back(nsqd, limit=1000, end=first.prev_seq or 0)
    both = [row["seq"] for row in (*second.messages, *first.messages)]
    assert both == [*range(both[0], 200)]
    assert not first.is_start


@pytest.mark.parametrize(
    "data", [b"", b"<html>", log_of([make_batch(0, b"x")])[:-1], log_of([make_batch(0, b"x")]) + b"x" * 100]
)
def test_an_answer_that_is_no_log(data: bytes) -> None:
    found = LogSearch(LogSource(lambda query: data, lambda: False, at_once), ALL, 10)
    with pytest.raises(BadLog):
        found.run({"seq": "0"})
    with pytest.raises(BadLog):
        body_at(data, 7)


def test_records_that_lie_about_their_messages() -> None:
    for batch in (Batch(0, 1, 1, 0, 1 << 31, 0, b"\0\0\0\1x"), Batch(0, 1, 1, 0, 9, 5, b"\0\0\0\1x" * 2)):
        with pytest.raises(BadLog):
            search(Nsqd(batch), MessageFilter("", "z"))


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        (("x" * 1001,), "text"),
        (("", "("), "regex"),
        (("", "x{1000}{1000}"), "regex"),
        (("", "", "$."), "path"),
    ],
)
def test_what_is_no_filter(fields: tuple[str, ...], name: str) -> None:
    with pytest.raises(BadFilter) as raised:
        MessageFilter(*fields)
    assert raised.value.name == name
    assert str(raised.value)
