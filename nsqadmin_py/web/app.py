"""Passes requests to handlers: the table of paths, and rules for all requests."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from http import HTTPStatus
from time import monotonic
from typing import Any
from urllib.parse import quote

from werkzeug.exceptions import BadRequest, HTTPException, MethodNotAllowed, NotFound, RequestEntityTooLarge
from werkzeug.routing import Map, Rule
from werkzeug.wrappers import Request, Response

from nsqadmin_py.audit import AuditLog
from nsqadmin_py.cluster.findings import Findings
from nsqadmin_py.clusterinfo import Absent, ClusterInfo, NoAnswer
from nsqadmin_py.options import NsqadminOptions
from nsqadmin_py.web.access import AccessRights, peer_of
from nsqadmin_py.web.answers import Handler, NotThere, RequestRefused, compress, refusal_of, refused
from nsqd_py.cluster.model import Cluster
from nsqd_py.cluster.poller import ClusterPoller
from nsqd_py.cluster.upstream import Upstream, UpstreamError
from nsqd_py.net.http.handling import ASKED, CHANGED
from nsqd_py.runtime.bugs import report_bug
from nsqd_py.runtime.logs import Log


@dataclass(frozen=True, slots=True)
class Services:
    """The objects that all handlers of paths use."""

    options: NsqadminOptions
    log: Log
    cluster: Cluster
    findings: Findings
    upstream: Upstream
    poller: ClusterPoller
    access: AccessRights
    audit_log: AuditLog

    def info(self) -> ClusterInfo:
        """Return the cluster at the current addresses, which PUT /config may change."""
        return ClusterInfo(self.upstream, self.options.lookupd_http_address, self.options.nsqd_http_address)


# A path, and the handler of each method.
Route = tuple[str, dict[str, Handler]]
_ASCII = "".join(map(chr, range(128)))
_QUIET_PARTS = ("/static/", "/api/v2/")
# Load balancers ask for this without a login.
_OPEN_PATH = "ping"


class App:
    """A WSGI application. All paths are below `base_path`."""

    def __init__(self, routes: Iterable[Route], base_path: str, access: AccessRights, log: Log) -> None:
        self._base = base_path.rstrip("/")
        self._access = access
        self._log = log
        routes = list(routes)
        self._routes = Map(
            [self._rule(path, method, handler) for path, handlers in routes for method, handler in handlers.items()],
            strict_slashes=False,
            merge_slashes=False,
        )
        self._api_path = f"{self._base}/api/"
        self._open_path = f"{self._base}/{_OPEN_PATH}"

    def _rule(self, path: str, method: str, handler: Handler) -> Rule:
        rule = Rule((self._base + path).rstrip("/") or "/", methods=[method], endpoint=handler)
        if rule.methods:
            rule.methods.discard("HEAD")  # werkzeug adds it; Go's nsqadmin does not answer HEAD
        return rule

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        # A raw byte that is not ASCII means the same as its escape; werkzeug reads only the escape.
        environ["QUERY_STRING"] = quote(environ.get("QUERY_STRING", ""), safe=_ASCII, encoding="latin-1")
        request = Request(environ)
        began_s = monotonic()
        try:
            response = self._respond(request)
            compress(request, response)
        except RequestRefused as refusal:
            response = refused(refusal)
        except Absent as error:
            response = refused(NotThere(str(error)))
        except (NoAnswer, UpstreamError) as error:
            self._log.of_clients.error("%s %s - %s", request.method, quote(request.path), error)
            response = refused(
                refusal_of(error) if isinstance(error, UpstreamError) else RequestRefused(502, f"UPSTREAM_ERROR: {error}")
            )
        except Exception as error:  # noqa: BLE001  a bug must not end the connection without an answer
            internal = report_bug(self._log, f"{request.method} {quote(request.path)}", error)
            response = refused(RequestRefused(500, f"INTERNAL_ERROR: {internal}"))
        self._access.add_headers(response)
        response.status = f"{response.status_code} {HTTPStatus(response.status_code).phrase}"  # not in capitals
        self._note(request, response.status_code, monotonic() - began_s)
        return response(environ, start_response)

    def _respond(self, request: Request) -> Response:
        self._access.check_site(request)
        if request.path != self._open_path:
            self._access.check_login(request)
        try:
            adapter = self._routes.bind("", url_scheme=request.scheme, path_info=request.path, default_method=request.method)
            handler, names = adapter.match(request.path, request.method)
            if "topic" in names and request.path.startswith(self._api_path):
                names = {key: name.replace("%2E", ".") for key, name in names.items()}  # see `enc` in static/lib/api.js
                self._access.check_view(request, names["topic"])
            response: Response = handler(request, **names)
            return response
        except NotFound as error:
            raise RequestRefused(404, "NOT_FOUND") from error
        except MethodNotAllowed as error:
            return self._wrong_method(request, error)
        except RequestEntityTooLarge as error:
            raise RequestRefused(413, "BODY_TOO_BIG") from error
        except BadRequest as error:
            raise RequestRefused(400, "INVALID_REQUEST") from error
        except HTTPException as error:
            raise RequestRefused(error.code or 500, error.name.upper().replace(" ", "_")) from error

    def _wrong_method(self, request: Request, error: MethodNotAllowed) -> Response:
        allowed = ", ".join(sorted({*(error.valid_methods or ()), "OPTIONS"}))
        response = Response("", 200) if request.method == "OPTIONS" else refused(RequestRefused(405, "METHOD_NOT_ALLOWED"))
        response.headers["Allow"] = allowed
        return response

    def _note(self, request: Request, status: int, took_s: float) -> None:
        """Log a request. Requests that an open page sends every few seconds are logged at level debug only."""
        log = self._log.of_clients
        write = log.debug if any(part in request.path for part in _QUIET_PARTS) else log.info
        query = f"?{request.query_string.decode('latin-1')}" if request.query_string else ""
        text = ASKED if request.method in ("GET", "HEAD") else CHANGED
        target, took = quote(request.path) + query, f"{took_s * 1000:.1f}ms"
        write(text, status, request.method, target, peer_of(request.environ), took)
