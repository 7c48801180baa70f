"""The messages of each nsqd in a file, and what nsqds say about the place of the first one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

from nsq_tools.to_file.log_parts import LogPart, LogPositions
from nsqd_py.client.options import ClientOptions
from tests.unit.to_file_fakes import FakeBatch


def ids(*numbers: int) -> list[bytes]:
    return [b"%016x" % number for number in numbers]


def part_of(*batches: list[bytes]) -> LogPart:
    part = LogPart("127.0.0.1:4150")
    for batch in batches:
        part.add(batch)
    return part


@pytest.mark.parametrize(
    ("batches", "bounds", "is_ordered"),
    [
        ([(5, 6, 9)], (5, 9), True),
        ([(5, 6), (7, 8)], (5, 8), True),
        ([(5, 6), (6, 7)], (5, 7), False),
        ([(5, 6, 6)], (5, 6), False),
        ([(7, 9), (5, 8)], (5, 9), False),
        ([(7, 5, 9)], (5, 9), False),
    ],
)
def test_bounds_and_order(batches: list[tuple[int, ...]], bounds: tuple[int, int], is_ordered: bool) -> None:
    part = part_of(*(ids(*batch) for batch in batches))
    assert (int(part.first_id, 16), int(part.last_id, 16)) == bounds
    assert (part.count, part.is_ordered) == (sum(map(len, batches)), is_ordered)


def test_an_earlier_message_makes_the_place_unknown() -> None:
    part = part_of(ids(5, 6))
    part.epoch, part.first_seq = 1, 20
    part.add(ids(7))
    assert (part.epoch, part.first_seq) == (1, 20)
    part.add(ids(3))
    assert (part.epoch, part.first_seq) == (None, None)


@contextmanager
def answering(**headers: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the port of a server that answers with these headers, and the paths that it was asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            for name, value in headers.items():
                self.send_header(f"X-Nsq-{name.replace('_', '-')}", value)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server.server_port, asked
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("headers", "place"),
    [
        ({"Before_Id": f"{4:016x}", "First_Seq": "20", "End_Seq": "30", "Epoch": "7"}, (7, 20)),
        (
            {"Before_Id": f"{5:016x}", "First_Seq": "20", "End_Seq": "30", "Epoch": "7"},
            (None, None),
        ),  # it was dropped
        (
            {"Before_Id": f"{4:016x}", "First_Seq": "30", "End_Seq": "30", "Epoch": "7"},
            (None, None),
        ),  # it is not there
        ({"First_Seq": "20", "End_Seq": "30", "Epoch": "7"}, (None, None)),  # ids do not rise
        ({}, (None, None)),  # Go's nsqd
    ],
)
def test_the_place_of_the_first_message(
    headers: dict[str, str], place: tuple[int | None, int | None]
) -> None:
    parts: list[LogPart] = []
    places = LogPositions("orders", ClientOptions())
    with answering(**headers) as (port, asked):
        for first_id in 5, 6:
            places.note(parts, [FakeBatch(b"body", first_id=first_id, http_port=port)])  # type: ignore[list-item]
        assert asked == [f"/topic/read?topic=orders&id={4:016x}&max_bytes=1"], (
            "one that does not say is left alone for a time"
        )
    (part,) = parts
    assert (part.epoch, part.first_seq, part.count) == (*place, 2)
    others: list[LogPart] = []
    LogPositions("orders", ClientOptions()).note(others, [FakeBatch(b"body", first_id=5, http_port=1)])  # type: ignore[list-item]
    assert others[0].first_seq is None, "nothing listens there"


@pytest.mark.parametrize(
    ("headers", "end"),
    [
        ({"Epoch": "7", "End_Id": f"{9:016x}", "End_Seq": "31"}, (f"{9:016x}", 31)),
        (
            {"Epoch": "8", "End_Id": f"{99:016x}", "End_Seq": "2", "Ended": "17:5,7:35"},
            (f"{2**63 - 1:016x}", 35),
        ),
        ({"Ended": "7:35"}, (f"{2**63 - 1:016x}", 35)),  # the topic was not created again
        ({"Epoch": "8", "End_Id": f"{99:016x}", "End_Seq": "2", "Ended": "17:5"}, (f"{5:016x}", 30)),
        ({"Epoch": "7", "End_Id": "x", "End_Seq": "31"}, (f"{5:016x}", 30)),  # another server
        ({}, (f"{5:016x}", 30)),
    ],
)
def test_how_far_the_log_went_when_the_file_ends(headers: dict[str, str], end: tuple[str, int]) -> None:
    parts: list[LogPart] = []
    places = LogPositions("orders", ClientOptions())
    first = {
        "Before_Id": f"{4:016x}",
        "First_Seq": "20",
        "End_Seq": "30",
        "Epoch": "7",
        "End_Id": f"{5:016x}",
    }
    with answering(**first) as (port, _):
        places.note(parts, [FakeBatch(b"body", first_id=5, http_port=port)])  # type: ignore[list-item]
    (part,) = parts
    assert (part.end_id, part.end_seq) == (f"{5:016x}", 30)
    with answering(**headers) as (port, _):
        places.note(parts, [FakeBatch(b"body", first_id=6, http_port=port)])  # type: ignore[list-item]
        places.note_ends(parts)
    assert (part.end_id, part.end_seq) == end


def test_a_topic_that_was_created_again_is_another_part() -> None:
    """nsqd closes the connection then; after a connection that was lost, the log is the same."""
    parts: list[LogPart] = []
    places = LogPositions("orders", ClientOptions())
    for first_id, epoch, seq in ((5, 1, 20), (7, 1, 22), (9, 2, 0)):
        place = {
            "Before_Id": f"{first_id - 1:016x}",
            "First_Seq": str(seq),
            "End_Seq": "99",
            "Epoch": str(epoch),
        }
        with answering(**place) as (port, _):
            batch = FakeBatch(b"1", b"2", first_id=first_id, http_port=port)
            batch.connection = object()
            assert places.note(parts, [batch])  # type: ignore[list-item]
    assert [(part.epoch, part.first_seq, part.count) for part in parts] == [(1, 20, 4), (2, 0, 2)]
