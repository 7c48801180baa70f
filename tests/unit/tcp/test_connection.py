"""The state of an NSQ client's connection: a pause, and what may end it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nsqd_py.broker.lifetime.shutdown import close as close_broker
from nsqd_py.errors import Invalid
from nsqd_py.net.transport import CLOSED, CLOSING, OPEN, PAUSED
from nsqd_py.tcp.connection import ClientConnection
from nsqd_py.tcp.fast_publishing import FastConnection
from tests.support.served_broker import ServedBroker, connected, read_all, read_until, wait_in_loop
from tests.support.wire import MAGIC, pub

OK = b"\0\0\0\6\0\0\0\0OK"


class Dialogue:
    """A connection that has named its protocol, and the socket of its client."""

    def __init__(self, connection: Any, client: Any) -> None:
        self.connection = connection
        self.client = client
        client.sendall(MAGIC)
        wait_in_loop(lambda: connection._parser is not None, "the magic")

    @property
    def published(self) -> int:
        """The number of messages in the topic."""
        topic = self.connection.broker.topics.get("t")
        return topic.message_count if topic is not None else 0


@pytest.fixture(params=[ClientConnection, FastConnection], ids=["general", "fast"])
def dialogue(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Dialogue]:
    nsqd = ServedBroker(tmp_path, connection=request.param)
    connection, client = connected(nsqd.tcp)
    yield Dialogue(connection, client)
    connection.close("the end of the test")
    client.close()
    close_broker(nsqd.broker)


def do_nothing() -> None:
    pass


def test_commands_wait_for_the_end_of_a_pause(dialogue: Dialogue) -> None:
    connection = dialogue.connection
    dialogue.client.sendall(pub("t", b"first"))
    assert read_until(dialogue.client, OK) == OK
    connection.pause()
    assert connection.state == PAUSED
    connection.on_data(pub("t", b"second"))
    dialogue.client.sendall(pub("t", b"third"))
    assert dialogue.published == 1
    connection.go_on(do_nothing)
    assert connection.state == OPEN
    assert read_until(dialogue.client, OK * 2) == OK * 2
    assert dialogue.published == 3


def test_a_step_that_pauses_again_executes_no_command(dialogue: Dialogue) -> None:
    connection = dialogue.connection
    connection.pause()
    connection.on_data(pub("t", b"x"))
    connection.go_on(connection.pause)
    assert (connection.state, dialogue.published) == (PAUSED, 0)
    connection.go_on(do_nothing)
    assert read_until(dialogue.client, OK) == OK


def refuse() -> None:
    raise Invalid("by the test")


@pytest.mark.parametrize("step", [do_nothing, refuse])
def test_a_client_that_must_close_is_not_opened_by_the_end_of_a_pause(
    dialogue: Dialogue, step: Callable[[], None]
) -> None:
    connection = dialogue.connection
    connection.pause()
    connection.on_data(pub("t", b"x"))
    connection.answer_error(Invalid("first"))
    assert connection.state == CLOSING
    connection.go_on(step)
    assert connection.state in (CLOSING, CLOSED)
    wait_in_loop(lambda: connection.state == CLOSED)
    assert read_all(dialogue.client).startswith(b"\0\0\0\x13\0\0\0\1E_INVALID first")
    assert dialogue.published == 0


def test_a_pause_is_no_silence(dialogue: Dialogue) -> None:
    connection = dialogue.connection
    connection.pause()
    connection.pulse.heard_s = 0.0
    connection.go_on(do_nothing)
    assert connection.pulse.heard_s > 0.0
