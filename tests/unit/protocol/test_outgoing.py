"""What a client says: compared with the commands that the tests' own client builds."""

from __future__ import annotations

import pytest

from nsqd_py.protocol import MAGIC_V2, outgoing
from tests.support import wire

ID = b"0123456789abcdef"
OTHER_ID = b"fedcba9876543210"
PUBS = wire.pub("topic", b"one") + wire.pub("topic", b"three") + wire.pub("topic", b"two")


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (MAGIC_V2, wire.MAGIC),
        (outgoing.NOP, wire.NOP),
        (outgoing.CLS, wire.CLS),
        (outgoing.identify(b'{"snappy": true}'), wire.identify(snappy=True)),
        (outgoing.auth(b"secret"), wire.auth(b"secret")),
        (outgoing.sub("topic", "channel#ephemeral"), wire.sub("topic", "channel#ephemeral")),
        (outgoing.rdy(2500), wire.rdy(2500)),
        (outgoing.fin(ID), wire.fin(ID)),
        (outgoing.fins([ID, OTHER_ID]), wire.fin(ID) + wire.fin(OTHER_ID)),
        (outgoing.fins([]), b""),
        (outgoing.req(ID, 1500), wire.req(ID, 1500)),
        (outgoing.touch(ID), wire.touch(ID)),
        (outgoing.touches([ID, OTHER_ID]), wire.touch(ID) + wire.touch(OTHER_ID)),
        (outgoing.touches([]), b""),
        (outgoing.pub("topic", b"body"), wire.pub("topic", b"body")),
        (outgoing.pubs("topic", [b"one", b"three", b"two"]), PUBS),
        (outgoing.pubs("topic", []), b""),
        (outgoing.dpub("topic", 250, b"later"), wire.dpub("topic", 250, b"later")),
        (outgoing.mpub("topic", [b"one", b"three", b""]), wire.mpub("topic", [b"one", b"three", b""])),
        (outgoing.mpub_of("topic", wire.mpub_body([b"x"])), wire.mpub("topic", [b"x"])),
        (outgoing.mpub_head("topic", 9) + wire.mpub_body([b"x"]), wire.mpub("topic", [b"x"])),
    ],
)
def test_commands_as_they_go_over_the_wire(command: bytes, expected: bytes) -> None:
    assert command == expected


@pytest.mark.parametrize("name", ["", "a b", "a\nb", "x" * 65, "a#other", "é", "\udc80"])
def test_names_that_nsqd_would_refuse_stay_here(name: str) -> None:
    for build in (
        lambda: outgoing.pub(name, b"x"),
        lambda: outgoing.pubs(name, [b"x"]),
        lambda: outgoing.dpub(name, 1, b"x"),
        lambda: outgoing.mpub(name, [b"x"]),
        lambda: outgoing.sub(name, "channel"),
        lambda: outgoing.sub("topic", name),
    ):
        with pytest.raises(outgoing.BadName, match="no name of a topic or channel"):
            build()
