"""Access rights: login, users of a proxy, and requests that browsers send on behalf of other sites."""

from __future__ import annotations

import binascii
import hashlib
import hmac
import secrets
from base64 import b64decode
from typing import Any

from werkzeug.wrappers import Request, Response

from nsqadmin_py.address_blocks import AddressBlocks
from nsqadmin_py.options import NsqadminOptions
from nsqadmin_py.permissions import ADMINISTER, VIEW, Scope, read_rule, scope_of
from nsqadmin_py.refusals import NotThere, RequestRefused
from nsqd_py.net.addresses import join_address
from nsqd_py.net.http import browsers, proxies
from nsqd_py.net.http.guard import Guard
from nsqd_py.net.http.handling import is_local

TOKEN_HEADER = "X-Nsqadmin-Token"
WHO_PROMOTES = "only its own machine may promote an nsqd, or nsqadmin with a token (--http-client-token-file)"
# Only our own scripts, nothing from other hosts, and no frame around the page.
_POLICY = (
    "default-src 'self'; img-src 'self' data:; style-src 'self'; script-src 'self'; connect-src 'self'; "
    "object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class AccessRights:
    """Checks each request before it is handled. Raises RequestRefused if it is not allowed."""

    def __init__(self, options: NsqadminOptions, guard: Guard | None) -> None:
        self._options = options
        self._guard = guard
        self._known_hosts = browsers.KnownHosts.of(options)
        self._proxies = AddressBlocks(options.acl_http_header_from)
        self._config_block = AddressBlocks(filter(None, [options.allow_config_from_cidr]))
        self._rules = [read_rule(text) for text in options.topic_permission]
        self._key = secrets.token_bytes(32)  # tokens are valid until the next start

    # ---- who asks

    def check_login(self, request: Request) -> None:
        """With --http-auth-file, refuse every client that cannot log in."""
        if self._guard is None:
            return
        login = _authorization(request), host_of(request.environ)
        known = self._guard.known(*login)
        if known is None:
            reply = self._guard.check(*login)
            if reply is not None and reply.status == 429:
                raise RequestRefused(429, "TOO_MANY_LOGINS")
            known = reply is None
        if not known:
            raise RequestRefused(401, "UNAUTHORIZED")

    def user(self, request: Request) -> str:
        """Return the user that a proxy or the browser's login names; empty if unknown."""
        return self._named(request) or basic_user(request)

    def is_identified(self, request: Request) -> bool:
        """True if a login or a trusted proxy proves the name of the user."""
        if self._guard is not None:
            return True
        return bool(self._proxies and self._named(request))

    def name_for_log(self, request: Request) -> str:
        """Return the user, or `token:` and the name of the token that the request has."""
        user = self.user(request)
        if user or self._guard is None:
            return user
        return self._guard.user_of(_authorization(request))

    def is_admin(self, request: Request) -> bool:
        """True if the user may do everything: an --admin-user, or anybody without such users and rules."""
        users = self._options.admin_user
        if users:
            return self._checked_user(request) in users
        return not self._rules

    def scope(self, request: Request) -> Scope:
        """Return the permissions on topics."""
        if not self._rules or self.is_admin(request):
            return Scope()
        user = self._checked_user(request)
        return scope_of(self._rules, user, self._groups(request))

    def _checked_user(self, request: Request) -> str:
        """Return the user that a trusted proxy names, or that has logged in here."""
        if self._guard is None:
            return self._named(request)
        return self.user(request)

    def _named(self, request: Request) -> str:
        return self._trusted_header(request, self._options.acl_http_header)

    def _groups(self, request: Request) -> list[str]:
        groups = self._trusted_header(request, self._options.acl_groups_http_header)
        return [group.strip() for group in groups.split(",")]

    def _trusted_header(self, request: Request, header: str) -> str:
        """Return a header with which a proxy describes the user.

        Without logins and trusted proxies, every client may name the user, as with Go's nsqadmin.
        """
        if self._proxies:
            is_believed = host_of(request.environ) in self._proxies
        else:
            is_believed = self._guard is None
        if is_believed:
            return request.headers.get(header, "")
        return ""

    # ---- what may be done

    def check_site(self, request: Request) -> None:
        """Refuse a request that a foreign web page may have caused."""
        message = browsers.refusal(request.method, b"", _fields_of(request), self._known_hosts)
        if message is not None:
            raise RequestRefused(403, message)

    def check_config(self, request: Request) -> None:
        """Refuse /config to addresses that --allow-config-from-cidr does not name.

        A request that a proxy passed on has the address of the proxy, which says nothing about the client.
        """
        block = self._config_block
        if not block:
            return
        is_unknown = self._is_passed_on(request) and not block.has_all
        if is_unknown or host_of(request.environ) not in block:
            raise RequestRefused(403, "FORBIDDEN")

    def _is_passed_on(self, request: Request) -> bool:
        if self._options.acl_http_header in request.headers:
            return True
        return proxies.is_passed_on(_fields_of(request))

    def check_action(self, request: Request, topic: str = "", permission: str = ADMINISTER) -> None:
        """Refuse a change of a topic, or without one of something that all users share."""
        self.check_may_act(request)
        if self.is_admin(request):
            return
        if not topic or not self.scope(request).may(permission, topic):
            raise RequestRefused(403, "FORBIDDEN")

    def check_may_act(self, request: Request) -> None:
        """Refuse all changes of a user who may change nothing. Others need `check_action` for each."""
        if self._options.read_only:
            raise RequestRefused(403, "READ_ONLY")
        if not self.may_act(request):
            raise RequestRefused(403, "FORBIDDEN")

    def check_promotion(self, request: Request) -> None:
        """Refuse a promotion to unknown clients of other machines, unless nsqadmin has a token for nsqds.

        An nsqd on the machine of nsqadmin takes a request of nsqadmin for one of its own machine, whoever
        caused it.
        """
        if self._options.http_client_token_file or self.is_identified(request):
            return
        if self._is_passed_on(request) or not is_local(peer_of(request.environ)):
            raise RequestRefused(403, f"FORBIDDEN: {WHO_PROMOTES}")

    def check_view(self, request: Request, topic: str) -> None:
        """Answer for a hidden topic as if it did not exist."""
        if not self.scope(request).sees(topic):
            raise NotThere("TOPIC_NOT_FOUND")

    def check_sees_all(self, request: Request) -> None:
        """Refuse metrics of the whole cluster to a user who may not view all topics."""
        if not self.scope(request).has_all:
            raise RequestRefused(403, "FORBIDDEN")

    def may_act(self, request: Request) -> bool:
        """True if the user may change something: everything, or some topics."""
        if self._options.read_only:
            return False
        if self.is_admin(request):
            return True
        grants = self.scope(request).grants or ()
        return any(grant.permission != VIEW for grant in grants)

    def token(self, request: Request) -> str:
        """Return the token that the page must send with its actions."""
        user = self.user(request)
        return hmac.new(self._key, user.encode(), hashlib.sha256).hexdigest()

    def check_token(self, request: Request) -> None:
        if not hmac.compare_digest(
            request.headers.get(TOKEN_HEADER, "").encode(), self.token(request).encode()
        ):
            raise RequestRefused(403, "INVALID_TOKEN")

    # ---- headers of answers

    def add_headers(self, response: Response) -> None:
        response.headers.extend(_HEADERS)
        if not self._options.dev_static_dir:  # a page under development may contain inline scripts
            response.headers["Content-Security-Policy"] = _POLICY
        if response.status_code == 401:
            response.headers["WWW-Authenticate"] = 'Basic realm="nsqadmin", charset="UTF-8"'


def _fields_of(request: Request) -> dict[bytes, bytes]:
    """Return the headers, by name in lower case."""
    return {_latin(name.lower()): _latin(value) for name, value in request.headers}


def _authorization(request: Request) -> bytes:
    return _latin(request.headers.get("Authorization", ""))


def _latin(text: str) -> bytes:
    return text.encode("latin-1", "replace")


def basic_user(request: Request) -> str:
    """Return the user of a basic login, without checking the password."""
    scheme, _, encoded = _authorization(request).partition(b" ")
    if scheme != b"Basic":
        return ""
    try:
        user, colon, _ = b64decode(encoded, validate=True).partition(b":")
    except binascii.Error:
        return ""
    return user.decode("utf-8", "replace") if colon else ""


def host_of(environ: dict[str, Any]) -> str:
    """Return the address of the client; empty for a unix socket."""
    host: str = environ.get("REMOTE_ADDR", "")
    return host.removeprefix("::ffff:")


def peer_of(environ: dict[str, Any]) -> str:
    """Return the client as `host:port`, or `@` for a unix socket."""
    host = host_of(environ)
    if host:
        return join_address(host, int(environ.get("REMOTE_PORT") or 0))
    return "@"
