"""One script of the page's ES modules: a browser loads it in one request in place of fifty. Pure.

Each module becomes a function that returns its exports, and runs once, after the modules that it imports. Only those
forms of import and export are known that the page and its libraries have; all others are refused.
"""

from __future__ import annotations

import gzip
import hashlib
import mimetypes
import posixpath
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import orjson
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from werkzeug.security import safe_join
from werkzeug.wrappers import Request, Response

from nsqadmin_py.options import NsqadminOptions
from nsqadmin_py.web.access import Access
from nsqadmin_py.web.answers import GZIP_FROM_BYTES, Refusal
from nsqadmin_py.web.views_api import Query, ViewsOfUsers, browser_url, session_of
from nsqd_py.cluster.upstream import place_of
from nsqd_py.settings.durations import SECOND_NS
from nsqd_py.version import NSQ_VERSION

_IMPORT = re.compile(r"""^import\s*(\{[^}]*\}|[\w$]+)\s*from\s*"([^"]+)";?""", re.MULTILINE)
_LAZY = re.compile(r"""\bimport\("(\.[^"]+)"\)""")
_DECLARED = re.compile(r"^export (?=(?:async )?(?:function|class|const) ([\w$]+))", re.MULTILINE)
_LISTED = re.compile(r"(?:^|(?<=[;}]))export\s*\{([^}]*)\};?", re.MULTILINE)
_DEFAULT = re.compile(r"(?:^|(?<=[;}]))export default ", re.MULTILINE)
# Comments in lines of their own, a third of the text.
_COMMENT = re.compile(r"^[ ]*(?:/\*\*(?:[^*]|\*(?!/))*\*/|//[^\n]*)\n", re.MULTILINE)
_LEFT_OVER = re.compile(r"(?:^|[;}])(?:import\b(?!\()|export\b)|\bimport\.meta\b", re.MULTILINE)


class NotBundled(ValueError):
    """A module has a form of import or export that is not known here; str(error) names it."""


def bundled(entry: str, read: Callable[[str], str], apart: Mapping[str, str]) -> str:
    """Return the text of one module that does what `entry` does.

    `read` returns the text of a module by its path. Modules in `apart` are loaded from these URLs by `import()`.
    """
    texts: dict[str, str] = {}
    _add(entry, read, apart, texts, ())
    return "\n".join(texts.values())


def _add(
    path: str, read: Callable[[str], str], apart: Mapping[str, str], texts: dict[str, str], importers: tuple[str, ...]
) -> None:
    if path in importers:
        raise NotBundled(f"{path} imports itself, by way of {importers[-1]}")
    if path in texts:
        return
    text = _COMMENT.sub("", read(path))

    def path_of(imported: str) -> str:
        return posixpath.normpath(posixpath.join(posixpath.dirname(path), imported))

    def lazy(match: re.Match[str]) -> str:
        imported = path_of(match[1])
        return f'import("{apart[imported]}")' if imported in apart else f"Promise.resolve({_name_of(imported)})"

    for imported in [match[1] for match in _IMPORT.findall(text)] + _LAZY.findall(text):
        if path_of(imported) not in apart:
            _add(path_of(imported), read, apart, texts, (*importers, path))
    text = _IMPORT.sub(lambda match: f"const {_taken(match[1])} = {_name_of(path_of(match[2]))};", text)
    text = _LAZY.sub(lazy, text)
    exports = [f"{name}: {name}" for name in _DECLARED.findall(text)]
    text = _DECLARED.sub("", text)
    for names in _LISTED.findall(text):
        exports += [_given(name) for name in names.split(",") if name.strip()]
    text = _LISTED.sub("", text)
    if _DEFAULT.search(text):
        text = _DEFAULT.sub("const $default = ", text)
        exports.append("default: $default")
    left = _LEFT_OVER.search(text)
    if left:
        raise NotBundled(f"{path}: {text[left.start() : left.start() + 60]!r}")
    texts[path] = f"const {_name_of(path)} = (() => {{\n{text}\nreturn {{ {', '.join(exports)} }};\n}})();"


def _name_of(path: str) -> str:
    return re.sub(r"\W", "$", path)


def _taken(names: str) -> str:
    """Return the left side of an import: `{ a as b }` or a name for the default export."""
    return re.sub(r"\s+as\s+", ": ", names) if names.startswith("{") else f"{{ default: {names} }}"


def _given(name: str) -> str:
    """Return an entry of an export list, `a` or `a as b`, as a property."""
    inner, _, outer = name.strip().partition(" as ")
    return f"{outer.strip() or inner}: {inner}"


STATIC = Path(__file__).parent.parent / "static"
_INDEX = "index.html"
_SCRIPT = "page.js"
_APART = ("vendor/uplot.js",)  # a quarter of all, and only charts need it
# The words that the list of topics asks with at first: views/topics.js.
_FIRST_PAGE = {"sort": "topic", "order": "asc", "offset": "0", "limit": "50"}
_STYLE = "style/page-and-parts.css"  # beside its parts, whose URLs are relative
_YEAR_S = 365 * 24 * 3600
_HASH_CHARACTERS = 16
_TYPES = {
    ".js": "text/javascript",
    ".mjs": "text/javascript",
    ".map": "application/json",
    ".svg": "image/svg+xml",
    ".woff": "font/woff",
    ".woff2": "font/woff2",
    ".ttf": "font/ttf",
    ".eot": "application/vnd.ms-fontobject",
    ".md": "text/plain",
    ".json": "application/json",
}


@dataclass(frozen=True, slots=True)
class Asset:
    body: bytes
    zipped: bytes | None
    digest: str
    content_type: str


class Shell:
    """Serves the page and its files. With --dev-static-dir, files are read from there at each request."""

    def __init__(self, options: NsqadminOptions, access: Access, views: ViewsOfUsers) -> None:
        self._options = options
        self._access = access
        self._views = views
        self._folder = Path(options.dev_static_dir) if options.dev_static_dir else STATIC
        is_dev = bool(options.dev_static_dir)
        has_index = (self._folder / _INDEX).is_file()
        self._assets: dict[str, Asset] | None = None if is_dev else {}
        self._templates = Environment(
            loader=FileSystemLoader(self._folder if has_index else STATIC),
            autoescape=True,
            undefined=StrictUndefined,
            auto_reload=is_dev,
        )
        self._templates.globals["static"] = self._url
        self._templates.globals["script"] = self._script
        self._templates.globals["styles"] = self._styles
        self._templates.globals["path"] = self._path

    # ---- the page

    def index(self, request: Request, **names: str) -> Response:
        """Answer with the shell, whatever the path is: the page reads it. It has the first figures with it."""
        first = orjson.dumps(self._first(request, names)).decode()
        html = self._templates.get_template(_INDEX).render({**self._context(request), "first": first})
        return Response(html, 200, {"Content-Type": "text/html; charset=utf-8", "Cache-Control": "no-store"})

    def _context(self, request: Request) -> Mapping[str, Any]:
        options = self._options
        return {
            "version": NSQ_VERSION,
            "base_path": options.base_path,
            "token": self._access.token(request),
            "session": orjson.dumps(session_of(options, self._access, request)).decode(),
            "user": self._access.user(request),
            "may_act": self._access.may_act(request),
            "is_admin": self._access.is_admin(request),
            "read_only": bool(options.read_only),
            "proxy_graphite": bool(options.proxy_graphite),
            "graphite_url": browser_url(options.graphite_url),
            "statsd_interval_s": options.statsd_interval_ns // SECOND_NS,
            "statsd_counter_format": options.statsd_counter_format,
            "statsd_gauge_format": options.statsd_gauge_format,
            "statsd_prefix": options.statsd_prefix,
            "lookupds": [place_of(address) for address in options.lookupd_http_address],
        }

    def _first(self, request: Request, names: Mapping[str, str]) -> dict[str, Any]:
        """Return the answers that the page would ask for, by their queries; none before the first round."""
        views = self._views.of(request)
        if not views.cluster.nodes:
            return {}
        queries: list[Query] = [{"view": "overview"}]
        view = next((name for name in ("channel", "topic", "node") if name in names), "")
        if view:
            queries.append({"view": view, **names})
        elif not request.query_string:
            is_nodes = request.path.endswith("/nodes")
            queries += [{"view": "nodes"}] if is_nodes else [{"view": "topics", **_FIRST_PAGE}, {"view": "attention"}]
        first = {}
        for query in queries:
            with suppress(Refusal):
                first[f"?{urlencode(query)}"] = views.document(query)
        return first

    def _path(self, path: str) -> str:
        """Return a path below the base path."""
        return f"{self._options.base_path.rstrip('/')}/{path.lstrip('/')}"

    def _url(self, name: str) -> str:
        """Return the URL of a file with a digest of its content, so that browsers may cache it forever."""
        asset = self._find(name)
        version = f"?v={asset.digest}" if asset is not None else ""
        return self._path(f"static/{name}") + version

    def _script(self, name: str) -> str:
        """Return the URL of a module with all that it imports; while the page is developed, of the module alone."""
        if self._assets is None:
            return self._url(name)
        if _SCRIPT not in self._assets:
            apart = {path: self._url(path) for path in _APART}
            text = bundled(name, lambda path: self._known(path).body.decode(), apart)
            self._assets[_SCRIPT] = _asset(_SCRIPT, text.encode())
        return self._url(_SCRIPT)

    def _styles(self, *names: str) -> list[str]:
        if self._assets is None:
            return [self._url(name) for name in names]
        if _STYLE not in self._assets:
            self._assets[_STYLE] = _asset(_STYLE, b"\n".join(self._known(name).body for name in names))
        return [self._url(_STYLE)]

    def _known(self, name: str) -> Asset:
        asset = self._find(name)
        if asset is None:
            raise FileNotFoundError(name)
        return asset

    # ---- files

    def asset(self, request: Request, name: str) -> Response:
        asset = self._find(name)
        if asset is None or name == _INDEX:
            return Response("NOT_FOUND", 404, {"Content-Type": "text/plain; charset=utf-8"})
        is_zipped = asset.zipped is not None and request.accept_encodings["gzip"] > 0
        response = Response(asset.zipped if is_zipped else asset.body, 200, {"Content-Type": asset.content_type})
        if asset.zipped is not None:
            response.headers["Vary"] = "Accept-Encoding"
        if is_zipped:
            response.headers["Content-Encoding"] = "gzip"
        response.set_etag(asset.digest)
        if request.args.get("v") == asset.digest and self._assets is not None:
            response.headers["Cache-Control"] = f"public, max-age={_YEAR_S}, immutable"
        else:
            response.headers["Cache-Control"] = "no-cache"
        return response.make_conditional(request)

    def _find(self, name: str) -> Asset | None:
        if self._assets is not None and name in self._assets:
            return self._assets[name]
        asset = self._load(name)
        if self._assets is not None and asset is not None:
            self._assets[name] = asset
        return asset

    def _load(self, name: str) -> Asset | None:
        path = safe_join(str(self._folder), name)
        try:
            body = Path(path).read_bytes() if path is not None else None
        except (OSError, ValueError):  # also for a name that contains a NUL
            body = None
        if body is None:
            return None
        return _asset(name, body)


def _asset(name: str, body: bytes) -> Asset:
    digest = hashlib.sha256(body).hexdigest()[:_HASH_CHARACTERS]
    kind = _content_type(name)
    is_text = kind.startswith("text/") and len(body) >= GZIP_FROM_BYTES
    return Asset(body, gzip.compress(body, 9, mtime=0) if is_text else None, digest, kind)


def _content_type(name: str) -> str:
    kind = _TYPES.get(Path(name).suffix) or mimetypes.guess_type(name)[0] or "application/octet-stream"
    return f"{kind}; charset=utf-8" if kind.startswith("text/") else kind
