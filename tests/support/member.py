"""The caller's side of the handshake of a group, on a test's own connection."""

from __future__ import annotations

import os
from pathlib import Path

from nsqd_py.broker.state_files import read_epochs
from nsqd_py.diskqueue.journals.epochs import Epoch
from nsqd_py.feed.pieces import OfferedLog
from nsqd_py.standby.messages import FOLLOW, NONCE_BYTES, Caller, Offer, encode_offer
from tests.support.nsqd_process import NsqdProcess, wait_until
from tests.support.wire import RESPONSE, Client, sized

SECRET = b"one secret of this group"


def secret_file(path: Path, *secrets: bytes) -> str:
    """Write the file of --standby-secret-file, and return the flag."""
    path.write_bytes(b"\n".join(secrets or (SECRET,)) + b"\n")
    path.chmod(0o600)
    return f"--standby-secret-file={path}"


def member(body: bytes) -> bytes:
    return b"MEMBER\n" + sized(body)


def standby(body: bytes) -> bytes:
    return b"STANDBY\n" + sized(body)


def ack(number: int) -> bytes:
    return b"ACK %d\n" % number


def caller_of(nsqd: NsqdProcess, secret: bytes = SECRET, purpose: str = FOLLOW) -> Caller:
    own = f"127.0.0.1:{nsqd.tcp_port}"
    return Caller(secret, purpose, own, own, os.urandom(NONCE_BYTES))


def join(client: Client, caller: Caller) -> Caller:
    """Prove the membership of this connection, and check that of nsqd."""
    challenge = client.ask(member(caller.hello()))
    assert challenge.kind == RESPONSE, challenge
    answer = client.ask(member(caller.prove(challenge.data)))
    assert answer.kind == RESPONSE, answer
    caller.check(answer.data)
    return caller


def fence_of(nsqd: NsqdProcess, new_primary: str) -> bytes:
    """Return the document of a fence whose epochs continue those of nsqd's logs, as its files have them."""
    saved = wait_until(lambda: read_epochs(nsqd.data_path), what="nsqd.epochs, which a first standby causes")
    newer = Epoch(1 << 62, 1 << 40)
    logs = {topic: OfferedLog((*epochs, newer)) for topic, epochs in saved.logs.items()}
    return encode_offer(Offer(newer.number, "", logs, new_primary), 1 << 20)


def plain_offer() -> bytes:
    """Return the document of a standby that has nothing."""
    return encode_offer(Offer(), 1 << 20)
