"""Asks the auth servers for the permissions of a client, and again when the authorization of a consumer has expired."""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

import gevent

from nsqd_py.auth.permissions import Authorization, BadAuthAnswer, compile_rules, read_answer
from nsqd_py.net.http import BadStatus, HttpClientError, Url, parse_url
from nsqd_py.net.http.client import HttpClient
from nsqd_py.runtime.logs.daemon_log import Log, one_line
from nsqd_py.runtime.pacing import ONE_ROUND_S, WorkSlices

MAX_ANSWER_BYTES = 1024 * 1024

# Statuses from 400 on that say nothing about the client: the request took too long, or there were too many.
_TRY_LATER = frozenset((408, 425, 429))

MOST_AT_A_TIME = 8
PAUSE_AFTER_FAILURE_S = 1.0


class NoAuthorization(Exception):
    """No auth server gave a valid answer; str(error) has the reason of each. Clients must not see it.

    is_refusal  True if one of them refused the client: its status was 4xx
    """

    def __init__(self, reasons: str, *, is_refusal: bool = False) -> None:
        super().__init__(reasons)
        self.is_refusal = is_refusal


@dataclass(slots=True)
class AuthFailures:
    """Questions that no auth server answered: their number, and the reason of the last one, empty after an answer."""

    count: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class AuthQuestion:
    """The facts about a client that an auth server gets. `common_name` is that of the client's TLS certificate."""

    secret: bytes
    remote_ip: str
    is_tls: bool
    common_name: str

    @property
    def values(self) -> dict[str, str | bytes]:
        return {
            "common_name": self.common_name,
            "remote_ip": self.remote_ip,
            "secret": self.secret,
            "tls": "true" if self.is_tls else "false",
        }


class AuthServers:
    """The auth servers. A question is sent to a random one first, and to the others in turn if that fails."""

    def __init__(
        self,
        addresses: Sequence[str],
        method: str,
        client: HttpClient,
        make_tls: Callable[[], Any],
        choose: Callable[[int], int] = random.randrange,
    ) -> None:
        """`make_tls` returns the TLS for https, or raises OSError; it is called at the first https request."""
        self._urls = {address: auth_url(address) for address in addresses}
        self._is_post = method == "post"
        self._client = replace(client, max_answer_bytes=MAX_ANSWER_BYTES)
        self._make_tls = make_tls
        self._choose = choose
        self.failures = AuthFailures()

    def ask(self, question: AuthQuestion) -> Authorization:
        """Return the permissions of a client. Blocks this greenlet. Raises NoAuthorization."""
        addresses = list(self._urls)
        start = self._choose(len(addresses))
        failures: list[str] = []
        is_refusal = False
        for address in addresses[start:] + addresses[:start]:
            try:
                found = self._ask_one(self._urls[address], question)
                self.failures.reason = ""
                return found
            except (HttpClientError, BadAuthAnswer) as error:
                status = error.status if isinstance(error, BadStatus) else 0
                is_refusal |= 400 <= status < 500 and status not in _TRY_LATER
                failures.append(f"failed to auth against {self._urls[address].origin} - {error}")
        reason = "; ".join(failures)
        if is_refusal:
            self.failures.reason = ""
        else:
            self.failures.count += 1
            self.failures.reason = one_line(reason)
        raise NoAuthorization(reason, is_refusal=is_refusal)

    def _ask_one(self, url: Url, question: AuthQuestion) -> Authorization:
        document: Mapping[str, Any] | None = None
        if self._is_post:  # each name has a list of values
            values = {**question.values, "secret": question.secret.decode(errors="replace")}
            document = {name: [value] for name, value in values.items()}
        else:
            url = url.with_query(urlencode(question.values))
        try:
            found = self._send(url, document)
        except BadStatus as refusal:
            secure_url = refusal.https_instead(url)
            if secure_url is None:
                raise
            found = self._send(secure_url, document)
        return authorization(found)

    def _send(self, url: Url, document: Mapping[str, Any] | None) -> Any:
        if url.is_secure and self._client.tls is None:
            try:
                self._client = replace(self._client, tls=self._make_tls())
            except OSError as error:
                raise HttpClientError(f"cannot set up TLS - {error.strerror or error}") from error
        return self._client.ask(url, document)


def auth_url(address: str) -> Url:
    """Parse an address: `host:port` means `http://host:port/auth`, others are URLs. Raises ValueError."""
    return parse_url(address if "://" in address else f"http://{address}/auth")


def authorization(document: Any) -> Authorization:
    """Return the permissions in an answer. Raises BadAuthAnswer. Lets other greenlets run between expressions."""
    answer = read_answer(document)
    rules = list(compile_rules(answer.grants, WorkSlices(ONE_ROUND_S).sleep_if_due))
    return Authorization(answer.ttl_s, answer.identity, answer.identity_url, rules)


class Renewals:
    """The guards that wait for a new authorization. Guards with the same question share one answer.

    At most MOST_AT_A_TIME questions are asked at once. While the auth servers do not answer, each of these greenlets
    asks once a second, however many consumers there are.
    """

    def __init__(self, servers: AuthServers, log: Log) -> None:
        self._servers = servers
        self._log = log
        self._waiting: OrderedDict[AuthQuestion, list[Callable[[Authorization | NoAuthorization], None]]] = (
            OrderedDict()
        )
        self._greenlets = 0

    def add(self, question: AuthQuestion, renewed: Callable[[Authorization | NoAuthorization], None]) -> None:
        """Ask, then call `renewed` with the answer."""
        self._waiting.setdefault(question, []).append(renewed)
        if self._greenlets < MOST_AT_A_TIME:
            self._greenlets += 1
            gevent.spawn(self._run)

    def _run(self) -> None:
        try:
            while self._waiting:
                question, waiting = self._waiting.popitem(last=False)
                answer = self._ask(question)
                slices = WorkSlices()
                for renewed in waiting:
                    renewed(answer)
                    slices.sleep_if_due()
                if isinstance(answer, NoAuthorization) and not answer.is_refusal:
                    gevent.sleep(PAUSE_AFTER_FAILURE_S)
        finally:
            self._greenlets -= 1

    def _ask(self, question: AuthQuestion) -> Authorization | NoAuthorization:
        try:
            return self._servers.ask(question)
        except NoAuthorization as error:
            return error
        except Exception as error:  # noqa: BLE001 - the guards end their subscriptions if the bug stays
            self._log.exception("AUTH error %r", error)
            return NoAuthorization("internal error")
