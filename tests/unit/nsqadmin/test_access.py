"""Who nsqadmin takes somebody for, by the header of a proxy and by logins."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path
from typing import Any

import gevent
import pytest
from gevent import socket
from werkzeug.test import EnvironBuilder
from werkzeug.wrappers import Request

from nsqadmin_py.options import NSQADMIN
from nsqadmin_py.refusals import RequestRefused
from nsqadmin_py.web.access import AccessRights, host_of, peer_of
from nsqadmin_py.web.server import HttpServer
from nsqd_py.runtime.logs.daemon_log import Log
from nsqd_py.runtime.pacing import Turns

BOB = "Basic " + b64encode(b"bob:secret").decode()
LOGINS: Any = object()  # a guard that let pass whoever comes here


def request_of(host: str = "10.0.0.7", **headers: str) -> Request:
    """By a unix socket where there is no host."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Request(
        EnvironBuilder(headers=named, environ_base={"REMOTE_ADDR": host, "REMOTE_PORT": "1"}).get_environ()
    )


def access_of(guard: Any = None, **options: Any) -> AccessRights:
    return AccessRights(NSQADMIN.defaults(admin_user=("bob",), **options), guard)


def judgement(access: AccessRights, request: Request) -> tuple[str, bool]:
    return access.user(request), access.is_admin(request)


@pytest.mark.parametrize(
    ("blocks", "host", "is_believed"),
    [
        (("10.0.0.0/24",), "10.0.0.7", True),
        (("10.0.0.0/24",), "::ffff:10.0.0.7", True),
        (("10.0.0.0/24",), "10.0.1.7", False),
        (("10.0.0.0/24",), "::1", False),
        (("10.0.0.0/24",), "", False),
        (("10.0.0.0/24", "unix"), "", True),
        (("unix",), "127.0.0.1", False),
        (("10.0.0.7",), "10.0.0.7", True),
        (("fe80::/10",), "fe80::1%eth0", True),
    ],
)
def test_only_the_proxies_that_are_named_are_believed(
    blocks: tuple[str, ...], host: str, is_believed: bool
) -> None:
    access = access_of(acl_http_header_from=blocks)
    wanted = ("bob", True) if is_believed else ("", False)
    assert judgement(access, request_of(host, X_Forwarded_User="bob")) == wanted


def test_who_logs_in_is_nobody_else() -> None:
    access = access_of(LOGINS)
    assert judgement(access, request_of(Authorization=BOB)) == ("bob", True)
    assert judgement(access, request_of(Authorization=BOB, X_Forwarded_User="eve")) == ("bob", True)
    assert judgement(access, request_of(Authorization="Bearer x", X_Forwarded_User="bob")) == ("", False)


def test_a_proxy_that_logs_in_may_name_its_users() -> None:
    access = access_of(LOGINS, acl_http_header_from=("10.0.0.0/8",))
    assert judgement(access, request_of(Authorization="Bearer x", X_Forwarded_User="bob")) == ("bob", True)
    assert judgement(access, request_of("11.0.0.1", Authorization="Bearer x", X_Forwarded_User="bob")) == (
        "",
        False,
    )


RULES = ("view orders.* group:shop", "publish orders.eu ada", "administer billing ada", "view public *")


@pytest.mark.parametrize(
    ("headers", "permissions"),
    [
        ({"X_Forwarded_User": "ada"}, "orders.eu:publish billing:administer public:view"),
        (
            {"X_Forwarded_User": "eve", "X_Forwarded_Groups": "x, shop"},
            "orders.eu:view orders.us:view public:view",
        ),
        ({"X_Forwarded_User": "shop", "X_Forwarded_Groups": "ada"}, "public:view"),  # a group is no user
        ({"X_Forwarded_User": "group:shop"}, "public:view"),
        ({}, "public:view"),
    ],
)
def test_permissions_on_topics(headers: dict[str, str], permissions: str) -> None:
    scope = access_of(acl_http_header_from=("10.0.0.0/8",), topic_permission=RULES).scope(
        request_of(**headers)
    )
    found = {
        topic: [
            permission for permission in ("view", "publish", "administer") if scope.may(permission, topic)
        ]
        for topic in ("orders.eu", "orders.us", "billing", "public", "Public", "orders")
    }
    assert " ".join(f"{topic}:{given[-1]}" for topic, given in found.items() if given) == permissions
    assert not scope.has_all


def test_administrators_and_users_without_rules_see_all_topics() -> None:
    access = access_of(acl_http_header_from=("10.0.0.0/8",), topic_permission=RULES)
    boss = request_of(X_Forwarded_User="bob")
    assert access.scope(boss).has_all
    access.check_action(boss, "anything")
    access.check_action(boss)
    assert access_of().scope(request_of()).has_all


def test_with_permissions_and_without_administrators_nobody_may_do_everything() -> None:
    options = {"acl_http_header_from": ("10.0.0.0/8",), "topic_permission": ("administer * ada",)}
    access = AccessRights(NSQADMIN.defaults(**options), None)
    ada, eve = request_of(X_Forwarded_User="ada"), request_of(X_Forwarded_User="eve")
    access.check_action(ada, "orders")
    for request, topic in ((ada, ""), (eve, "orders")):
        with pytest.raises(RequestRefused, match="FORBIDDEN"):
            access.check_action(request, topic)
    assert access.scope(ada).has_all
    assert access.may_act(ada)
    assert not access.may_act(eve)


TOKEN = {"http_client_token_file": "/run/token"}
TRUSTED = {"acl_http_header_from": ("10.0.0.0/8",)}


@pytest.mark.parametrize(
    ("host", "headers", "guard", "options", "may_promote"),
    [
        ("127.0.0.1", {}, None, {}, True),
        ("::ffff:127.0.0.1", {}, None, {}, True),
        ("::1", {}, None, {}, True),
        ("", {}, None, {}, True),
        ("10.0.0.7", {}, None, {}, False),
        ("127.0.0.1", {"X_Forwarded_For": "127.0.0.1"}, None, {}, False),
        ("127.0.0.1", {"Via": "1.1 proxy"}, None, {}, False),
        ("127.0.0.1", {"X_Forwarded_User": "bob"}, None, {}, False),
        ("10.0.0.7", {"X_Forwarded_User": "bob"}, None, TRUSTED, True),
        ("10.0.0.7", {}, None, TRUSTED, False),
        ("10.0.0.7", {"Authorization": BOB}, LOGINS, {}, True),
        ("10.0.0.7", {}, None, TOKEN, True),
    ],
)
def test_nsqadmin_lends_no_stranger_its_place_beside_an_nsqd(
    host: str, headers: dict[str, str], guard: Any, options: dict[str, Any], may_promote: bool
) -> None:
    """An nsqd without accounts lets its own machine promote it, and nsqadmin may run there."""
    access, request = access_of(guard, **options), request_of(host, **headers)
    if may_promote:
        access.check_promotion(request)
    else:
        with pytest.raises(RequestRefused, match="only its own machine may promote an nsqd"):
            access.check_promotion(request)


def test_only_a_trusted_proxy_names_groups() -> None:
    access = access_of(acl_http_header_from=("11.0.0.0/8",), topic_permission=RULES)
    assert not access.scope(request_of(X_Forwarded_Groups="shop")).sees("orders.eu")
    assert (
        not access_of(LOGINS, topic_permission=RULES)
        .scope(request_of(X_Forwarded_Groups="shop"))
        .sees("orders.eu")
    )


def test_who_comes_by_a_unix_socket_has_no_address(tmp_path: Path) -> None:
    seen = []

    def app(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        seen.append((host_of(environ), peer_of(environ)))
        start_response("200 OK", [])
        return [b"hello"]

    server = HttpServer(app, str(tmp_path / "http.sock"), 10, None, Log(), Turns(gevent.get_hub().loop))
    server.start()
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(tmp_path / "http.sock"))
        client.sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert client.makefile("rb").read().endswith(b"\r\n\r\nhello")
    server.close()
    assert seen == [("", "@")]
