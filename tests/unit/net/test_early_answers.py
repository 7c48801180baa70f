"""Answers that are queued before the write that they report, and withdrawn when it fails."""

from __future__ import annotations

from nsqd_py.net.transport import KINDS, EarlyAnswers


def test_a_ticket_names_the_answer_that_is_queued_next() -> None:
    out: list[bytes] = []
    early = EarlyAnswers(out)
    tickets = []
    for kind in range(KINDS):
        tickets.append(early.ticket(kind))
        out.append(b"OK%d" % kind)
    assert [early.kind_of(ticket) for ticket in tickets] == list(range(KINDS))
    early.replace(tickets[1], lambda answer: b"not " + answer)
    assert out == [b"OK0", b"not OK1", b"OK2", b"OK3"]


def test_a_withdrawn_answer_takes_those_behind_it_along() -> None:
    out = [b"an answer", b"a message"]
    early = EarlyAnswers(out)
    ticket = early.ticket()
    out += [b"OK", b"OK of the next publish"]
    early.withdraw(ticket)
    assert out == [b"an answer", b"a message"]


def test_a_ticket_stays_the_same_while_the_output_grows() -> None:
    out: list[bytes] = []
    early = EarlyAnswers(out)
    first, out[:] = early.ticket(2), [b"OK"]
    second = early.ticket(2)
    out.append(b"OK")
    assert (first, second) == (2, 2 + KINDS)
