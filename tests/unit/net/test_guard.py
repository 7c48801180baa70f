"""The guard of admin paths: its file, headers, remembered passwords, and floods of wrong passwords."""

from __future__ import annotations

import hashlib
import os
import threading
from base64 import b64encode
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import bcrypt
import gevent
import pytest

from nsqd_py.net.http import guard as guard_module
from nsqd_py.net.http.failures import TOO_MANY_LOGINS, UNAUTHORIZED
from nsqd_py.net.http.guard import (
    FORGOTTEN_S,
    FREE_FAILURES,
    MOST_FAILED_ADDRESSES,
    MOST_WAITING,
    MOST_WAITING_PER_ADDRESS,
    REMEMBERED_S,
    BadAuthFile,
    Guard,
    Login,
    Logins,
    TooManyLogins,
    parse_credentials,
    parse_login,
    read_credentials,
)
from nsqd_py.runtime.logs.daemon_log import FATAL, Log

ADDRESS = "198.51.100.7"
TOKEN = b"b9c1d2"
BEARER = b"Bearer " + TOKEN
TOKEN_LINE = b"token:ci:" + hashlib.sha256(TOKEN).hexdigest().encode()
HASH = bcrypt.hashpw(b"secret", b"$2b$04$" + b"nsqd" * 5 + b"ne")  # the same in every process: it names tests


def basic(user: bytes, password: bytes) -> bytes:
    return b"Basic " + b64encode(user + b":" + password)


RIGHT = basic(b"ann", b"secret")


class Clock:
    """Stands still, until somebody sleeps by it."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.slept_s: list[float] = []

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.slept_s.append(seconds)
        self.now_s += seconds


class Gate:
    """A guard on a file, with a clock; and how many passwords it had to compute."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path = path
        self.clock = Clock()
        self.write(b"ann:" + HASH, TOKEN_LINE)
        self.guard = Guard(str(path), Log(level=FATAL), self.clock)
        self.compute = Mock(side_effect=guard_module._is_right)
        monkeypatch.setattr(guard_module, "_is_right", self.compute)

    def write(self, *lines: bytes) -> None:
        """Replaces the file, as editors do, some time before it is looked at."""
        new = self.path.with_suffix(".new")
        new.write_bytes(b"\n".join(lines) + b"\n")
        new.replace(self.path)
        self.look_again()

    def look_again(self) -> None:
        self.clock.now_s += 1.0


@pytest.fixture
def gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Gate:
    return Gate(tmp_path / "auth", monkeypatch)


# ---- the file


@pytest.mark.parametrize("version", [b"2a", b"2b", b"2y"])
def test_hashes_of_all_versions(version: bytes) -> None:
    line = b"ann:$" + version + HASH[3:]
    credentials = parse_credentials(b"# who may\n\n" + line + b"\r\n" + TOKEN_LINE, "f")
    assert bcrypt.checkpw(b"secret", credentials.hash_of(b"ann"))
    assert credentials.token_name(TOKEN) == b"ci"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"", "no user and no token in it"),
        (b"# nothing but this\n", "no user and no token in it"),
        (b"ann", "line 1: expected user:hash or token:name:sha256"),
        (b"\n:" + HASH, "line 2: expected user:hash or token:name:sha256"),
        (b"ann:secret", "line 1: expected a hash by bcrypt"),
        (b"ann:$apr1$lZL6V/ci$eIMz/iKDkbtys/uU7LEK00", "line 1: expected a hash by bcrypt"),
        (b"ann:" + HASH[:-1], "line 1: expected a hash by bcrypt"),
        (b"ann:$2y$17$" + HASH[7:], "line 1: the cost of a hash must be between 4 and 16"),
        (b"ann:" + HASH + b"\nann:" + HASH, "line 2: ann appears twice"),
        (b"token:ci:secret", "line 1: expected token:name:sha256"),
        (b"token::" + b"0" * 64, "line 1: expected token:name:sha256"),
        (TOKEN_LINE + b"\n" + TOKEN_LINE, "line 2: ci appears twice"),
    ],
)
def test_a_bad_file_is_told_without_its_secrets(text: bytes, problem: str) -> None:
    with pytest.raises(BadAuthFile) as caught:
        parse_credentials(text, "/the/file")
    assert str(caught.value).startswith("--http-auth-file /the/file")
    assert problem in str(caught.value)
    assert "secret" not in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    large = tmp_path / "large"
    large.write_bytes(b"#" * (2 << 20))
    too_large = "must be a file of at most 1048576 bytes"
    problems = {
        pipe: too_large,
        large: too_large,
        tmp_path: "Is a directory",
        tmp_path / "none": "No such file",
    }
    for path, problem in problems.items():
        with pytest.raises(BadAuthFile, match=f"{path}: {problem}"):
            read_credentials(str(path))


@pytest.mark.parametrize(
    ("encoded", "login"),
    [
        (b64encode(b"ann:secret"), Login(b"ann", b"secret")),
        (b64encode(b"ann:a:b"), Login(b"ann", b"a:b")),
        (b64encode(b":"), Login(b"", b"")),
        (b64encode(b"ann"), None),
        (b"ann:secret", None),
        (b"", None),
        (b64encode(b"ann:" + b"x" * 1024), None),
    ],
)
def test_logins(encoded: bytes, login: Login | None) -> None:
    assert parse_login(encoded) == login


# ---- the guard


@pytest.mark.parametrize(
    ("authorization", "known"),
    [
        (b"", False),
        (BEARER, True),
        (b"bearer   " + TOKEN, True),
        (BEARER + b"0", False),
        (b"Bearer", False),
        (b"Basic " + TOKEN, False),
        (b"Digest ann", False),
        (RIGHT, None),
        (basic(b"nobody", b"secret"), None),
    ],
)
def test_what_is_known_at_once(gate: Gate, authorization: bytes, known: bool | None) -> None:
    assert gate.guard.known(authorization, ADDRESS) is known


def test_passwords(gate: Gate) -> None:
    check = partial(gate.guard.check, address=ADDRESS)
    assert check(RIGHT) is None
    assert check(basic(b"ann", b"Secret")) is UNAUTHORIZED
    assert check(basic(b"ann", b"")) is UNAUTHORIZED
    assert check(basic(b"ann", b"sec\0ret" * 30)) is UNAUTHORIZED


def test_the_guard_of_the_next_role_uses_the_same_thread(gate: Gate) -> None:
    assert answer(gate.guard, RIGHT)
    threads = len(os.listdir("/proc/self/task"))
    assert answer(Guard(str(gate.path), Log(level=FATAL)), RIGHT)
    assert len(os.listdir("/proc/self/task")) == threads


def test_of_a_long_password_the_beginning_counts_as_for_htpasswd(gate: Gate) -> None:
    gate.write(b"ann:" + bcrypt.hashpw(b"x" * 72, bcrypt.gensalt(4)))
    assert gate.guard.check(basic(b"ann", b"x" * 100), ADDRESS) is None
    assert gate.guard.check(basic(b"ann", b"x" * 71), ADDRESS) is UNAUTHORIZED


def test_without_users_no_password_is_computed(gate: Gate) -> None:
    gate.write(TOKEN_LINE)
    assert gate.guard.known(RIGHT, ADDRESS) is False


def test_a_right_password_is_remembered_for_a_while_and_a_wrong_one_is_not(gate: Gate) -> None:
    wrong = basic(b"ann", b"wrong")
    gate.guard.check(RIGHT, ADDRESS)
    gate.guard.check(wrong, ADDRESS)
    assert gate.guard.known(RIGHT, ADDRESS) is True
    assert gate.guard.known(wrong, ADDRESS) is None
    gate.clock.now_s += REMEMBERED_S
    assert gate.guard.known(RIGHT, ADDRESS) is None


def test_a_flood_is_sent_away_and_tokens_and_other_addresses_pass(gate: Gate) -> None:
    all_are_there, compute = threading.Event(), gate.compute.side_effect
    gate.compute.side_effect = lambda *login: all_are_there.wait(40) and compute(*login)
    attackers = [f"192.0.2.{number}" for number in range(24)]
    flood = [
        gevent.spawn(gate.guard.check, basic(b"ann", b"%d" % attempt), attacker)
        for attempt in range(MOST_WAITING_PER_ADDRESS + 10)
        for attacker in attackers
    ]
    right = gevent.spawn(gate.guard.check, RIGHT, ADDRESS)
    while not right.started:
        gevent.sleep(0.001)
    assert gate.guard.known(BEARER, ADDRESS) is True
    all_are_there.set()
    gevent.joinall([*flood, right])
    assert right.value is None and right.successful()
    replies = [one.value for one in flood]
    computed = gate.compute.call_count - 1
    assert computed == len(attackers) * (MOST_WAITING_PER_ADDRESS + 1)
    assert replies.count(UNAUTHORIZED) == computed
    assert replies.count(TOO_MANY_LOGINS) == len(flood) - computed
    assert gate.guard.check(RIGHT, attackers[0]) is None


def test_logins_that_are_gone_wait_no_more() -> None:
    logins = Logins(lambda: 0.0, gevent.sleep)
    order = []

    def log_in(address: str) -> None:
        with logins.turn(address):
            order.append(address)
            gevent.sleep(0)

    first, gone, last = (gevent.spawn(log_in, address) for address in ("a", "b", "c"))
    gevent.sleep(0)
    gone.kill()
    gevent.joinall([first, last])
    log_in("d")
    assert order == ["a", "c", "d"]


def test_the_number_of_waiting_logins_is_bounded() -> None:
    logins = Logins(lambda: 0.0, gevent.sleep)

    def log_in(address: str) -> bool:
        try:
            with logins.turn(address):
                gevent.sleep(0)
                return True
        except TooManyLogins:
            return False

    crowd = [gevent.spawn(log_in, str(number)) for number in range(MOST_WAITING + 11)]
    gevent.joinall(crowd)
    assert [one.value for one in crowd].count(False) == 10


def test_an_unknown_user_takes_as_long_as_some_known_one(gate: Gate) -> None:
    costs = {b"$04$", b"$05$"}
    gate.write(b"ann:" + HASH, b"bob:" + HASH.replace(b"$04$", b"$05$"))
    credentials = read_credentials(str(gate.path))
    seen = {credentials.hash_of(b"nobody%d" % number)[3:7] for number in range(64)}
    assert seen == costs
    assert len({credentials.hash_of(b"nobody") for _ in range(8)}) == 1


def test_a_file_that_becomes_bad_changes_nothing(gate: Gate) -> None:
    gate.write(b"ann:secret")
    assert gate.guard.known(BEARER, ADDRESS) is True
    gate.path.unlink()
    gate.look_again()
    assert gate.guard.known(BEARER, ADDRESS) is True
    gate.write(b"ann:" + HASH)
    assert gate.guard.known(BEARER, ADDRESS) is False


def test_memory_of_what_was_right_is_bounded(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard_module, "_MOST_REMEMBERED", 2)
    for number in range(3):
        assert gate.guard.known(BEARER, f"192.0.2.{number}")
    assert len(gate.guard._remembered) == 1


# ---- wrong passwords and tokens slow their address


@pytest.fixture
def clock(gate: Gate) -> Clock:
    """The clock of the gate, by which it sleeps too."""
    gate.guard = Guard(str(gate.path), Log(level=FATAL), gate.clock, gate.clock.sleep)
    return gate.clock


def answer(guard: Guard, authorization: bytes, address: str = ADDRESS) -> bool:
    known = guard.known(authorization, address)
    return guard.check(authorization, address) is None if known is None else known


@pytest.mark.parametrize("wrong", [b"Bearer wrong", basic(b"ann", b"wrong")])
def test_wrong_ones_slow_their_address_and_no_other(gate: Gate, clock: Clock, wrong: bytes) -> None:
    for _ in range(FREE_FAILURES):
        assert not answer(gate.guard, wrong)
    assert clock.slept_s == []
    for _ in range(8):
        assert not answer(gate.guard, wrong)
    assert clock.slept_s == [0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0, 2.0]
    assert answer(gate.guard, BEARER, "198.51.100.8")
    assert len(clock.slept_s) == 8
    assert answer(gate.guard, BEARER)  # it waits too: who guesses must not learn which one is right
    assert answer(gate.guard, BEARER)  # and is remembered
    assert len(clock.slept_s) == 9
    clock.now_s += FORGOTTEN_S + 1
    assert not answer(gate.guard, wrong)
    assert len(clock.slept_s) == 9


def test_what_one_address_remembers_another_one_cannot_guess_at_once(gate: Gate) -> None:
    assert answer(gate.guard, RIGHT)
    assert gate.guard.known(RIGHT, ADDRESS) is True
    assert gate.guard.known(RIGHT, "198.51.100.8") is None


def test_few_requests_of_a_slowed_address_wait(gate: Gate) -> None:
    for _ in range(FREE_FAILURES):
        gate.guard.known(b"Bearer wrong", ADDRESS)
    flood = [
        gevent.spawn(gate.guard.check, b"Bearer wrong", ADDRESS) for _ in range(MOST_WAITING_PER_ADDRESS + 7)
    ]
    gevent.joinall(flood)
    replies = [one.value for one in flood]
    assert (replies.count(UNAUTHORIZED), replies.count(TOO_MANY_LOGINS)) == (MOST_WAITING_PER_ADDRESS + 1, 6)


def test_failures_of_many_addresses_take_bounded_memory() -> None:
    clock = Clock()
    logins = Logins(clock, clock.sleep)
    for address in ["192.0.2.1"] * FREE_FAILURES + [
        f"10.0.{n // 256}.{n % 256}" for n in range(MOST_FAILED_ADDRESSES)
    ]:
        logins.note_failure(address)
    assert logins.delay_s("192.0.2.1") == 0  # it failed longest ago
    for number in range(FREE_FAILURES):
        logins.note_failure(f"2001:db8::{number}")
    assert logins.delay_s("2001:db8::ffff") > 0
    assert logins.delay_s("2001:db8:0:1::1") == 0
