"""Reading the answers of HTTP servers."""

from __future__ import annotations

import pytest

from nsq_tools.to_http.answers import MAX_BODY_BYTES, MAX_HEAD_BYTES, Answer, AnswerReader, BadAnswer

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nOK"


def read(data: bytes, size: int = 1 << 30) -> AnswerReader:
    reader = AnswerReader()
    for start in range(0, len(data), size):
        reader.feed(data[start : start + size])
    return reader


@pytest.mark.parametrize(
    ("data", "status", "may_stay_open"),
    [
        (OK, 200, True),
        (b"HTTP/1.1 204 No Content\r\n\r\n", 204, True),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nOK\r\n0\r\n\r\n", 200, True),
        (b"HTTP/1.1 500 Oh\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", 500, False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nOK", 200, False),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + OK, 200, True),
        (b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + OK, 200, True),
        (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 2\r\n\r\n", 304, True),
    ],
)
def test_answers_whole_and_byte_by_byte(data: bytes, status: int, may_stay_open: bool) -> None:
    for size in (1 << 30, 7, 1):
        reader = read(data, size)
        assert reader.is_complete
        assert reader.answer() == Answer(status, "", may_stay_open)


def test_a_reader_reads_one_answer_after_the_other() -> None:
    reader = AnswerReader()
    for status in (b"200", b"503", b"201"):
        reader.begin()
        assert not reader.is_complete
        reader.feed(OK.replace(b"200", status))
        assert reader.answer() == Answer(int(status), "", True)


@pytest.mark.parametrize("end", range(1, len(OK)))
def test_a_part_is_no_answer(end: int) -> None:
    assert not read(OK[:end]).is_complete


def test_the_end_of_the_connection_ends_an_answer_that_has_begun() -> None:
    for data, has_answer in ((OK[:-1], True), (b"HTTP/1.1 200 OK\r\n\r\npart", True), (OK[:30], False), (b"", False)):
        reader = read(data)
        assert not reader.is_complete
        assert reader.end() is has_answer
        if has_answer:
            assert reader.answer() == Answer(200, "", False)


def test_where_a_redirect_leads() -> None:
    reader = read(b"HTTP/1.1 307 X\r\nLOCATION: /caf\xc3\xa9\r\nContent-Length: 0\r\n\r\n")
    assert reader.answer() == Answer(307, "/café", True)


def test_an_answer_to_nobody_closes_the_connection() -> None:
    reader = read(OK + OK.replace(b"200", b"500"))
    assert reader.answer() == Answer(200, "", False)


def test_what_comes_after_the_last_answer_closes_the_connection() -> None:
    reader = read(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\nmore")
    assert reader.answer() == Answer(200, "", False)


def test_an_endless_body_is_not_read() -> None:
    reader = read(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    for _ in range(MAX_BODY_BYTES // 1024 + 1):
        reader.feed(b"400\r\n" + bytes(1024) + b"\r\n")
    assert reader.answer() == Answer(200, "", False)


def test_an_endless_head_is_no_answer() -> None:
    reader = read(b"HTTP/1.1 200 OK\r\n")
    with pytest.raises(BadAnswer, match="longer than"):
        for _ in range(MAX_HEAD_BYTES // 1024 + 1):
            reader.feed(b"A: " + b"x" * 1019 + b"\r\n")


def test_another_protocol_is_no_answer() -> None:
    with pytest.raises(BadAnswer, match="not HTTP"):
        read(b"SSH-2.0-OpenSSH_9.6\r\n")


def test_who_changes_the_protocol_has_not_taken_the_message() -> None:
    reader = read(b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nbytes")
    assert reader.is_complete
    assert reader.answer().status == 101
    assert not reader.answer().may_stay_open
