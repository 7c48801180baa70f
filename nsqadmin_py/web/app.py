"""Passes requests to handlers: the rules for all requests, and the objects that all handlers use."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from http import HTTPStatus
from time import monotonic
from typing import Any, Self
from urllib.parse import quote

from werkzeug.exceptions import BadRequest, HTTPException, MethodNotAllowed, NotFound, RequestEntityTooLarge
from werkzeug.routing import Map, Rule
from werkzeug.wrappers import Request, Response

from nsqadmin_py.audit import AuditLog
from nsqadmin_py.cluster.findings import Findings
from nsqadmin_py.clusterinfo import ClusterInfo, NoAnswer
from nsqadmin_py.options import NsqadminOptions
from nsqadmin_py.refusals import RequestRefused
from nsqadmin_py.web.access import AccessRights, peer_of
from nsqadmin_py.web.answers import Handler, as_go, as_json, compress, refusal_of, refused, upstream_failed
from nsqd_py.cluster.admin_client import UpstreamError
from nsqd_py.cluster.model import Cluster
from nsqd_py.cluster.poller import ClusterPoller
from nsqd_py.cluster.upstream import Upstream
from nsqd_py.net.http.handling import ASKED, CHANGED
from nsqd_py.runtime.logs.bugs import report_bug
from nsqd_py.runtime.logs.daemon_log import Log

# By method and path, such as "GET /api/topics".
Routes = dict[str, Handler]

_ASCII = "".join(map(chr, range(128)))
_QUIET_PARTS = ("/static/", "/api/v2/")
# Load balancers ask for this without a login.
_OPEN_PATH = "ping"


@dataclass(frozen=True)
class Handlers:
    """The base of classes with handlers of paths: the objects that they use."""

    options: NsqadminOptions
    log: Log
    cluster: Cluster
    findings: Findings
    upstream: Upstream
    poller: ClusterPoller
    access: AccessRights
    audit_log: AuditLog

    @classmethod
    def like(cls, other: Handlers, **more: Any) -> Self:
        """Return handlers that use the same objects, and `more`."""
        return cls(**vars(other), **more)

    def info(self) -> ClusterInfo:
        """Return the cluster at the current addresses, which PUT /config may change."""
        return ClusterInfo(self.upstream, self.options.lookupd_http_address, self.options.nsqd_http_address)


class App:
    """A WSGI application. All paths are below `base_path`."""

    def __init__(self, routes: Routes, base_path: str, access: AccessRights, log: Log) -> None:
        self._base = base_path.rstrip("/")
        self._access = access
        self._log = log
        rules = [self._rule(route, handler) for route, handler in routes.items()]
        self._routes = Map(rules, strict_slashes=False, merge_slashes=False)
        self._api_path = f"{self._base}/api/"
        self._own_path = f"{self._base}/api/v2/"
        self._open_path = f"{self._base}/{_OPEN_PATH}"

    def _rule(self, route: str, handler: Handler) -> Rule:
        method, path = route.split()
        rule = Rule((self._base + path).rstrip("/") or "/", methods=[method], endpoint=handler)
        if rule.methods:
            rule.methods.discard("HEAD")  # werkzeug adds it; Go's nsqadmin does not answer HEAD
        return rule

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        # A raw byte that is not ASCII means the same as its escape; werkzeug reads only the escape.
        environ["QUERY_STRING"] = quote(environ.get("QUERY_STRING", ""), safe=_ASCII, encoding="latin-1")
        request = Request(environ)
        began_s = monotonic()
        response = self._answer(request)
        self._access.add_headers(response)
        response.status = (
            f"{response.status_code} {HTTPStatus(response.status_code).phrase}"  # not in capitals
        )
        self._note(request, response.status_code, monotonic() - began_s)
        return response(environ, start_response)

    def _answer(self, request: Request) -> Response:
        try:
            response = self._respond(request)
            compress(request, response)
            return response
        except RequestRefused as refusal:
            return refused(refusal)
        except (NoAnswer, UpstreamError) as error:
            self._log.of_clients.error("%s %s - %s", request.method, quote(request.path), error)
            return refused(
                refusal_of(error) if isinstance(error, UpstreamError) else upstream_failed(str(error))
            )
        except Exception as error:  # noqa: BLE001  a bug must not end the connection without an answer
            internal = report_bug(self._log, f"{request.method} {quote(request.path)}", error)
            return refused(RequestRefused(500, f"INTERNAL_ERROR: {internal}"))

    def _respond(self, request: Request) -> Response:
        self._access.check_site(request)
        if request.path != self._open_path:
            self._access.check_login(request)
        try:
            adapter = self._routes.bind("", url_scheme=request.scheme)
            path = request.path.rstrip("/")
            handler, names = adapter.match(path or "/", request.method)
            if path not in (request.path, self._base):
                return _without_slash(request, path)
            if "topic" in names and request.path.startswith(self._api_path):
                # See `enc` in static/lib/api.js.
                names = {key: name.replace("%2E", ".") for key, name in names.items()}
                self._access.check_view(request, names["topic"])
            answer = handler(request, **names)
            if isinstance(answer, Response):
                return answer
            if request.path.startswith(self._own_path):
                return as_json(answer)
            return as_go(answer)
        except NotFound as error:
            raise RequestRefused(404, "NOT_FOUND") from error
        except MethodNotAllowed as error:
            return _wrong_method(request, error)
        except RequestEntityTooLarge as error:
            raise RequestRefused(413, "BODY_TOO_BIG") from error
        except BadRequest as error:
            raise RequestRefused(400, "INVALID_REQUEST") from error
        except HTTPException as error:
            raise RequestRefused(error.code or 500, error.name.upper().replace(" ", "_")) from error

    def _note(self, request: Request, status: int, took_s: float) -> None:
        """Log a request, at level debug if an open page sends it every few seconds."""
        log = self._log.of_clients
        is_quiet = any(part in request.path for part in _QUIET_PARTS)
        write = log.debug if is_quiet else log.info
        target = quote(request.path)
        if request.query_string:
            target += f"?{request.query_string.decode('latin-1')}"
        text = ASKED if request.method in ("GET", "HEAD") else CHANGED
        took = f"{took_s * 1000:.1f}ms"
        write(text, status, request.method, target, peer_of(request.environ), took)


def _without_slash(request: Request, path: str) -> Response:
    """Redirect to the path, as Go's nsqadmin does: to this host, also if the path begins with two slashes."""
    location = f"/{quote(path.lstrip('/'))}"
    if request.query_string:
        location += f"?{request.query_string.decode('latin-1')}"
    response = Response("", 301 if request.method == "GET" else 308)
    response.headers["Location"] = location
    response.autocorrect_location_header = False
    return response


def _wrong_method(request: Request, error: MethodNotAllowed) -> Response:
    is_question = request.method == "OPTIONS"
    if is_question:
        response = Response("")
    else:
        response = refused(RequestRefused(405, "METHOD_NOT_ALLOWED"))
    response.headers["Allow"] = ", ".join(sorted({*(error.valid_methods or ()), "OPTIONS"}))
    return response
