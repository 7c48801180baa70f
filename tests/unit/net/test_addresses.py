"""The addresses that users configure are checked by all programs alike, before anything is written."""

from pathlib import Path

import pytest

from nsqd_py.client.addresses import parse_address
from nsqd_py.client.errors import BadAddress
from nsqd_py.net.addresses import check_listen_address, join_address, parse_host_port
from nsqd_py.net.http.client import http_url
from nsqd_py.settings.declaration import BadOptions
from tests.support.commands import main_of

_BAD = [
    "127.0.0.1:70000",
    ":abc",
    "4150",
    "127.0.0.1:",
    "127.0.0.1:http",
    "::1:4150",
    "[::1",
    "[nsqd]:4150",
    "tcp://127.0.0.1:4150",
    "http://127.0.0.1:4150",
    "a b:4150",
    "a..b:4150",
    "a:-1",
    "a:４１５０",
    "a:1,b:2",
    f"{'a' * 64}:4150",
]
_NSQADMIN = ("nsqadmin", "--lookupd-http-address=127.0.0.1:1")
_TAIL = ("nsq_tail", "--topic=t", "--n=1")
_LISTEN = [
    (("nsqd",), "tcp"),
    (("nsqd",), "http"),
    (("nsqd",), "https"),
    (("nsqlookupd",), "tcp"),
    (("nsqlookupd",), "http"),
    (_NSQADMIN, "http"),
]


@pytest.mark.parametrize("address", [*_BAD, "", "unix:/tmp/socket", "localhost"])
def test_a_listen_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(ValueError):
        check_listen_address(address)


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1:0", ":4150", "[::1]:4150", "[::1%lo]:1", "nsqd-1.example.:4150", "/run/a:1", "./a", "a.sock"],
)
def test_a_listen_address(address: str) -> None:
    check_listen_address(address)


# Hosts that anyone can announce to an nsqlookupd: neither a path, a query, a login nor a unix socket may come of them.
_FOREIGN = [
    join_address(host, 80) for host in ("a/b?c=", "a#", "x@a", "::1]:80/p?[", "/run/a", "unix:/run/a", "a\n")
]


@pytest.mark.parametrize("address", [*_BAD, *_FOREIGN, "", "127.0.0.1:0"])
def test_an_address_to_connect_that_is_none_is_refused(address: str) -> None:
    parsers = (parse_host_port, parse_address, http_url) if address in _FOREIGN else (parse_host_port,)
    for parser in parsers:
        with pytest.raises((ValueError, BadAddress, BadOptions)):
            parser(address)


_FLAGS = [
    *((command, f"--{flag}-address") for command, flag in _LISTEN),
    *(
        (("nsqd", "--tcp-address=127.0.0.1:0"), flag)
        for flag in (
            "--statsd-address",
            "--lookupd-tcp-address",
            "--standby-of",
            "--auth-http-address",
            "--unix-socket",
        )
    ),
    (("nsqadmin",), "--nsqd-http-address"),
    (("nsqadmin",), "--lookupd-http-address"),
    *((_TAIL, flag) for flag in ("--nsqd-tcp-address", "--lookupd-http-address")),
    *((("nsq_stat", "--once"), flag) for flag in ("--nsqd-http-address", "--lookupd-http-address")),
    (("nsq_to_file", "--topic=t"), "--nsqd-tcp-address"),
    (("nsq_to_http", "--topic=t", "--channel=c", "--post=http://127.0.0.1:1/"), "--nsqd-tcp-address"),
    (("nsq_to_http", "--topic=t", "--channel=c", "--nsqd-tcp-address=127.0.0.1:1"), "--post"),
    (("nsq_to_nsq", "--topic=t", "--nsqd-tcp-address=127.0.0.1:1"), "--destination-nsqd-tcp-address"),
    (("to_nsq", "--topic=t"), "--nsqd-tcp-address"),
    (("spark_replay", "/nowhere", "--yes"), "--nsqd-tcp-address"),
    (("spark_replay", "/nowhere", "--yes"), "--lookupd-http-address"),
]


@pytest.mark.parametrize("address", ["127.0.0.1:70000", ":abc"])
@pytest.mark.parametrize(("command", "flag"), _FLAGS)
def test_every_program_refuses_impossible_addresses(
    command: tuple[str, ...],
    flag: str,
    address: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    name, *arguments = command
    value = f"http://{address}/" if flag == "--post" else address
    assert main_of(name)([*arguments, f"{flag}={value}"]) == 2
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 1, lines
    assert list(tmp_path.iterdir()) == []
