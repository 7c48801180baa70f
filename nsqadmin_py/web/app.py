"""Passes requests to handlers: the table of paths, and rules for all requests."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable
from http import HTTPStatus
from time import monotonic
from typing import Any
from urllib.parse import quote

from werkzeug.exceptions import BadRequest, HTTPException, MethodNotAllowed, NotFound, RequestEntityTooLarge
from werkzeug.routing import Map, Rule
from werkzeug.wrappers import Request, Response

from nsqadmin_py.web.access import Access, peer_of
from nsqadmin_py.web.answers import Handler, Refusal, compress, refused
from nsqd_py.net.http.handling import ASKED, CHANGED
from nsqd_py.runtime.logs import Log

# A path, and the handler of each method.
Route = tuple[str, dict[str, Handler]]
_ASCII = "".join(map(chr, range(128)))
_QUIET_PARTS = ("/static/", "/api/v2/")
# Load balancers ask for this without a login.
_OPEN_PATH = "ping"


class App:
    """A WSGI application. All paths are below `base_path`."""

    def __init__(self, routes: Iterable[Route], base_path: str, access: Access, log: Log) -> None:
        self._base = base_path.rstrip("/")
        self._access = access
        self._log = log
        routes = list(routes)
        self._spellings = [(self._base + path).split("/") for path, _ in routes]
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
        except Refusal as refusal:
            response = refused(refusal)
        except Exception as error:  # noqa: BLE001  a bug must not end the connection without an answer
            self._log.of_clients.exception("%s %s - %r", request.method, quote(request.path), error)
            response = refused(Refusal(500, "INTERNAL_ERROR"))
        self._access.add_headers(response)
        response.status = f"{response.status_code} {HTTPStatus(response.status_code).phrase}"  # not in capitals
        self._note(request, response.status_code, monotonic() - began_s)
        return response(environ, start_response)

    def _respond(self, request: Request) -> Response:
        self._access.check_site(request)
        if request.path != self._open_path:
            self._access.check_login(request)
        try:
            handler, names = self._match(request, request.path)
            if "topic" in names and request.path.startswith(self._api_path):
                self._access.check_view(request, names["topic"])
            return handler(request, **names)
        except NotFound:
            return self._elsewhere(request)
        except MethodNotAllowed as error:
            return self._wrong_method(request, error)
        except RequestEntityTooLarge as error:
            raise Refusal(413, "BODY_TOO_BIG") from error
        except BadRequest as error:
            raise Refusal(400, "INVALID_REQUEST") from error
        except HTTPException as error:
            raise Refusal(error.code or 500, error.name.upper().replace(" ", "_")) from error

    def _match(self, request: Request, path: str) -> tuple[Handler, dict[str, Any]]:
        """Raises NotFound, MethodNotAllowed."""
        if path.endswith("/") and path != "/":  # werkzeug would match it without the slash
            raise NotFound
        adapter = self._routes.bind("", url_scheme=request.scheme, path_info=path, default_method=request.method)
        handler, names = adapter.match(path, request.method)
        return handler, dict(names)

    def _elsewhere(self, request: Request) -> Response:
        """Redirect a path with superfluous slashes or dots, or in another case, to the right one."""
        path = self._spelled(posixpath.normpath(f"/{request.path.lstrip('/')}"))
        if path != request.path:
            try:
                self._match(request, path)
            except HTTPException:
                raise Refusal(404, "NOT_FOUND") from None
            query = request.query_string.decode("latin-1")
            location = quote(path) + (f"?{query}" if query else "")
            return Response("", 301 if request.method == "GET" else 307, {"Location": location})
        raise Refusal(404, "NOT_FOUND")

    def _spelled(self, path: str) -> str:
        """Return the path with all fixed words spelled as in the table of paths."""
        parts = path.split("/")
        for pattern in self._spellings:
            has_rest = pattern[-1].startswith("<path:")
            if len(parts) == len(pattern) or (has_rest and len(parts) > len(pattern)):
                pairs = list(zip(pattern, parts, strict=False))
                if all(word.startswith("<") or word.lower() == part.lower() for word, part in pairs):
                    spelled = [part if word.startswith("<") else word for word, part in pairs]
                    return "/".join(spelled + parts[len(pattern) :])
        return path

    def _wrong_method(self, request: Request, error: MethodNotAllowed) -> Response:
        allowed = ", ".join(sorted({*(error.valid_methods or ()), "OPTIONS"}))
        response = Response("", 200) if request.method == "OPTIONS" else refused(Refusal(405, "METHOD_NOT_ALLOWED"))
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
