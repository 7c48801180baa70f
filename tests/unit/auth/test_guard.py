"""The guard of one client: remembered permissions, renewal, and the errors that the client gets."""

from __future__ import annotations

import logging
from typing import Any
from unittest.mock import Mock

import gevent
import pytest
from gevent.event import Event

from nsqd_py.auth.guard import LONGEST_GRACE_S, SHORTEST_GRACE_S, AuthGuard, Step
from nsqd_py.auth.permissions import Authorization, compile_rules, read_answer
from nsqd_py.auth.servers import MOST_AT_A_TIME, AuthQuestion, NoAuthorization, Renewals
from nsqd_py.errors import ClientError
from nsqd_py.net.tls import TlsInfo
from nsqd_py.pqueues.alarms import Alarms
from tests.support.auth_server import EVERYTHING, Grant, answer_of

SECOND_NS = 1_000_000_000


class FakeServers:
    """Gives `answer`, or raises it, once it may."""

    def __init__(self) -> None:
        self.questions: list[AuthQuestion] = []
        self.asking = self.most_asking = 0
        self.answer: Authorization | Exception = granted(EVERYTHING)
        self.may_answer = Event()
        self.may_answer.set()

    def ask(self, question: AuthQuestion) -> Authorization:
        self.questions.append(question)
        self.asking += 1
        self.most_asking = max(self.most_asking, self.asking)
        self.may_answer.wait()
        self.asking -= 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class FakeClient:
    """Keeps what it was asked to do."""

    def __init__(self) -> None:
        self.log: Any = logging.getLogger("test")
        self.log.of_clients = self.log
        self.peer = "192.0.2.1:5"
        self.tls_info: TlsInfo | None = None
        self.is_paused = False
        self.forgotten_pubs = 0
        self.errors: list[str] = []
        self.closed = ""

    def pause(self) -> None:
        assert not self.is_paused
        self.is_paused = True

    def go_on(self, step: Step) -> None:
        assert self.is_paused
        self.is_paused = False
        try:
            step()
        except ClientError as error:
            self.revoke(error)

    def forget_pub(self) -> None:
        self.forgotten_pubs += 1

    def revoke(self, error: ClientError) -> None:
        self.errors.append(error.wire.decode())

    def close(self, reason: str) -> None:
        self.closed = reason


def granted(*grants: Grant, ttl: int = 60) -> Authorization:
    answer = read_answer(answer_of(*grants, ttl=ttl))
    return Authorization(
        answer.ttl_s, answer.identity, answer.identity_url, list(compile_rules(answer.grants))
    )


class Scene:
    """A guard with fakes around it, and a clock that the test sets."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.client = FakeClient()
        self.servers: Any = FakeServers()
        self.alarms = Alarms()
        self.renewals = Renewals(self.servers, self.client.log)
        self.guard = self.new_guard(self.client)
        self.done: list[str] = []

    def new_guard(self, client: FakeClient) -> AuthGuard:
        return AuthGuard(client, self.servers, self.renewals, self.alarms, lambda: self.now_ns)

    def consume(self, ttl: int = 10) -> None:
        self.authenticate(ttl)
        self.check("SUB", b"orders", b"archive")

    def produce(self, ttl: int = 10) -> None:
        self.authenticate(ttl)
        self.check("PUB")

    def authenticate(self, ttl: int = 0) -> None:
        if ttl:
            self.servers.answer = granted(EVERYTHING, ttl=ttl)
        self.guard.authenticate(b"sesame", lambda answer: self.done.append(answer.decode()))
        self.settle()

    def check(self, command: str, topic: bytes = b"orders", channel: bytes = b"") -> None:
        self.guard.check(command, topic, channel, lambda: self.done.append(command))

    def settle(self) -> None:
        gevent.sleep(0)
        gevent.sleep(0)

    def advance(self, seconds: int) -> None:
        self.now_ns += seconds * SECOND_NS
        self.alarms.ring_due(self.now_ns)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_decision_is_made_once(scene: Scene) -> None:
    answer = scene.servers.answer = Mock(ttl_s=60, identity="", identity_url="", rules=(1,))
    scene.authenticate()
    for topic in (b"a", b"b", b"a", b"b"):
        scene.check("PUB", topic)
    assert [asked.args[0] for asked in answer.permits.call_args_list] == [b"a", b"b"]
    assert scene.done[1:] == ["PUB"] * 4


@pytest.mark.parametrize(
    ("failure", "error"),
    [
        (NoAuthorization("not for clients"), "E_AUTH_FAILED AUTH failed"),
        (RuntimeError("a bug"), "E_AUTH_ERROR AUTH error"),
    ],
)
def test_why_the_servers_failed_is_not_told(
    scene: Scene, failure: Exception, error: str, caplog: pytest.LogCaptureFixture
) -> None:
    scene.servers.answer = failure
    scene.authenticate()
    assert scene.client.errors == [error]
    assert str(failure) in caplog.text
    assert "sesame" not in caplog.text


def test_a_bug_behind_the_answer_ends_the_connection(scene: Scene) -> None:
    scene.guard.authenticate(b"sesame", Mock(side_effect=RuntimeError))
    scene.settle()
    assert scene.client.closed == "internal error"


# --- renewal


def test_the_servers_are_asked_again_when_the_authorization_has_expired(scene: Scene) -> None:
    scene.produce()
    scene.advance(9)
    scene.check("PUB")
    assert (len(scene.servers.questions), scene.client.forgotten_pubs) == (1, 0)
    scene.advance(1)
    # Not before the next command.
    assert (len(scene.servers.questions), scene.client.forgotten_pubs) == (1, 1)
    scene.check("PUB")
    assert scene.client.is_paused
    scene.settle()
    assert scene.servers.questions == [AuthQuestion(b"sesame", "192.0.2.1", False, "")] * 2
    assert scene.done[1:] == ["PUB"] * 3
    scene.advance(9)
    scene.check("PUB")
    assert len(scene.servers.questions) == 2
    scene.advance(1)
    scene.check("PUB")
    assert scene.client.is_paused


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (granted(("^other$", (".*",), ("publish",))), 'E_UNAUTHORIZED AUTH failed for PUB on "orders" ""'),
        (granted(), 'E_UNAUTHORIZED AUTH failed for PUB on "orders" ""'),
        (NoAuthorization("away"), "E_AUTH_FAILED AUTH failed"),
    ],
)
def test_what_is_revoked_is_refused_after_the_renewal(scene: Scene, answer: Any, error: str) -> None:
    scene.produce()
    scene.servers.answer = answer
    scene.advance(10)
    scene.check("PUB")
    scene.settle()
    assert scene.client.errors == [error]
    assert scene.done[1:] == ["PUB"]


# --- the renewal of a consumer, which sends no command that would be checked

REFUSED = NoAuthorization("403", is_refusal=True)
AWAY = NoAuthorization("away")
ONLY_PUBLISH = granted(("^orders$", (".*",), ("publish",)))
NO_LONGER = 'E_UNAUTHORIZED AUTH failed for SUB on "orders" "archive"'


def test_a_publish_does_not_save_the_subscription(scene: Scene) -> None:
    scene.consume()
    scene.servers.may_answer.clear()
    scene.servers.answer = ONLY_PUBLISH
    scene.advance(10)
    scene.check("PUB")
    scene.servers.may_answer.set()
    scene.settle()
    assert set(scene.client.errors) == {NO_LONGER}


@pytest.mark.parametrize(("ttl_s", "grace_s"), [(2, SHORTEST_GRACE_S), (30, 30), (3600, LONGEST_GRACE_S)])
@pytest.mark.parametrize("hangs", [False, True])
def test_a_subscription_outlives_silent_auth_servers_for_a_limited_time(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, ttl_s: int, grace_s: int, hangs: bool
) -> None:
    monkeypatch.setattr("nsqd_py.auth.servers.PAUSE_AFTER_FAILURE_S", 0)
    scene.consume(ttl=ttl_s)
    scene.servers.answer = AWAY
    if hangs:
        scene.servers.may_answer.clear()
    scene.advance(ttl_s - 1)
    for _ in range(grace_s):
        scene.advance(1)
        scene.settle()
    assert len(scene.servers.questions) == (2 if hangs else 1 + grace_s)
    assert scene.client.errors == []
    scene.advance(1)
    assert scene.client.errors == ["E_AUTH_FAILED AUTH failed"]


def test_consumers_that_expire_together(scene: Scene) -> None:
    """Those with one secret share a question; few questions are asked at a time."""
    scene.servers.answer = granted(EVERYTHING, ttl=10)
    clients = [FakeClient() for _ in range(60)]
    for number, client in enumerate(clients):
        guard = scene.new_guard(client)
        guard.authenticate(b"%d" % (number // 2), lambda _: None)
        scene.settle()
        guard.check("SUB", b"orders", b"archive", lambda: None)
    scene.servers.questions.clear()
    scene.servers.most_asking = 0
    scene.servers.may_answer.clear()
    scene.servers.answer = REFUSED
    scene.advance(10)
    scene.settle()
    scene.servers.may_answer.set()
    while scene.servers.asking or not all(client.errors for client in clients):
        gevent.sleep(0)
    assert len(scene.servers.questions) == 30
    assert scene.servers.most_asking == MOST_AT_A_TIME
    assert all(client.errors == ["E_AUTH_FAILED AUTH failed"] for client in clients)


# --- the end


def test_a_client_that_is_gone_is_not_kept_in_memory_for_long(scene: Scene) -> None:
    scene.authenticate(ttl=1_000_000)
    scene.advance(600)
    assert (scene.guard._is_fresh, scene.client.forgotten_pubs) == (True, 0)
    scene.guard.close()
    scene.advance(60)
    assert scene.alarms.next_due_ns is None
