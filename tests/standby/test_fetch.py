"""One nsqd of a group fetches from another: both ways, in bounded pieces, and nobody else can."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from nsqd_py.diskqueue.files.log_file import log_file_name
from nsqd_py.server.options import read_options
from nsqd_py.standby.link import FollowRefused
from nsqd_py.standby.messages import FETCH
from nsqd_py.standby.repairs.fetch import FetchFailed, FetchLink, RemoteFile, is_same_history
from nsqd_py.standby.repairs.fetch_server import FORMAT, MOST_BYTES
from tests.support.member import caller_of, join, member, secret_file, standby
from tests.support.nsqd_process import NsqdProcess
from tests.support.standby_processes import standby_of, wait_until_it_has_all
from tests.support.wire import ERROR, RESPONSE

pytestmark = pytest.mark.ours

FIRST = log_file_name("t", 0)
FILE_BYTES = 65_536
MESSAGES = [b"%04d" % number * 50 for number in range(800)]


Pair = tuple[NsqdProcess, NsqdProcess]


@pytest.fixture(scope="module")
def pair(tmp_path_factory) -> Iterator[Pair]:
    """A primary with three log files, and its standby; the group has a secret."""
    folder = tmp_path_factory.mktemp("fetch")
    secret = secret_file(folder / "secret")
    flags = (secret, "--standby-acks=1", f"--max-bytes-per-file={FILE_BYTES}")
    with (
        NsqdProcess(folder / "a", *flags).start() as primary,
        standby_of(primary, folder / "b", *flags) as second,
    ):
        primary.create("t", "c")
        primary.publish("t", MESSAGES)
        wait_until_it_has_all(primary)
        yield primary, second


def fetch_link(nsqd: NsqdProcess, *flags: str) -> FetchLink:
    secret = flags or (f"--standby-secret-file={nsqd.data_path.parent / 'secret'}",)
    return FetchLink(read_options(list(secret)), f"127.0.0.1:{nsqd.tcp_port}")


def log_files(nsqd: NsqdProcess) -> list[Path]:
    return sorted(nsqd.data_path.glob("t.*.log"))


@pytest.mark.parametrize("which", [0, 1], ids=["primary", "standby"])
def test_a_member_gets_the_files_of_a_log(pair, which):
    asked = pair[which]
    with fetch_link(asked) as link:
        assert link.node() == (0, True)
        log = link.list_log("t")
        assert [file.name for file in log.files] == [path.name for path in log_files(asked)]
        assert len(log.files) > 2
        for file, path in zip(log.files, log_files(asked), strict=True):
            end = link.end_of(file)
            data = b"".join(link.pieces(file, 0, end.end_offset))
            assert data == path.read_bytes()[: end.end_offset]
        assert link.end_of(log.files[-1]).end_seq == len(MESSAGES)
        assert link.list_log("none") == ((), [])
        assert list(link.list_logs()) == [("t", log)]


def test_both_sides_are_in_the_same_epoch(pair):
    with fetch_link(pair[0]) as mine, fetch_link(pair[1]) as theirs:
        assert is_same_history(mine.list_log("t").epochs, theirs.list_log("t").epochs)
        assert not is_same_history((), ())
        assert [file[:2] for file in mine.list_log("t").files] == [
            file[:2] for file in theirs.list_log("t").files
        ]


def test_what_is_not_there_is_said_and_the_connection_goes_on(pair):
    with fetch_link(pair[1]) as link:
        first = link.list_log("t").files[0]
        other = first._replace(salt=first.salt ^ 1)
        with pytest.raises(FetchFailed, match="another version here"):
            link.fetch_bytes(other, 0, 100)
        with pytest.raises(FetchFailed, match="another version here"):
            link.end_of(other)
        with pytest.raises(FetchFailed, match="No such file"):
            link.end_of(RemoteFile(log_file_name("t", 1 << 40), 1, 1))
        assert link.fetch_bytes(first, first.size_bytes + 5, 100) == b""
        assert len(link.fetch_bytes(first, 0, 10 * MOST_BYTES)) == first.size_bytes


@pytest.mark.parametrize(
    ("request_fields", "text"),
    [
        ({"fetch": "bytes", "name": "../" + FIRST, "salt": 1, "offset": 0, "size": 1}, "is no log file"),
        ({"fetch": "bytes", "name": "nsqd.dat", "salt": 1, "offset": 0, "size": 1}, "is no log file"),
        ({"fetch": "bytes", "name": FIRST, "salt": 1, "offset": -1, "size": 1}, "is no number"),
        ({"fetch": "bytes", "name": FIRST, "salt": 1}, "KeyError"),
        ({"fetch": "log", "topic": "a/b", "after": ""}, "is no topic"),
        ({"fetch": "all"}, "is unknown"),
        ({"fetch": "node", "format": 2}, "format 2"),
    ],
)
def test_a_request_that_is_not_valid(pair, request_fields, text):
    with pair[1].connect() as client:
        caller = join(client, caller_of(pair[1], purpose=FETCH))
        answer = client.ask(standby(caller.signed(json.dumps({"format": FORMAT, **request_fields}).encode())))
        assert answer.kind == ERROR
        assert text in answer.data.decode()


@pytest.mark.parametrize("which", [0, 1], ids=["primary", "standby"])
def test_nobody_else_gets_anything(pair, which, tmp_path):
    asked = pair[which]
    request = json.dumps({"format": FORMAT, "fetch": "node"}).encode()
    with asked.connect() as client:
        assert b"no proof of membership" in client.ask(standby(bytes(32) + request)).data
    with pytest.raises(FollowRefused, match="the proof of membership is wrong"):
        fetch_link(asked, secret_file(tmp_path / "other", b"another secret of a group"))
    with asked.connect() as client:  # a proof covers its document
        caller = join(client, caller_of(asked, purpose=FETCH))
        signed = caller.signed(request)
        assert b"wrong proof" in client.ask(standby(signed.replace(b"node", b"nodE"))).data
    with asked.connect() as client:  # who came to fetch does nothing else
        caller = join(client, caller_of(asked, purpose=FETCH))
        assert client.ask(standby(caller.signed(request))).kind == RESPONSE
        assert client.ask(member(caller.hello())).kind == ERROR
