"""The page: one shell for all its paths, and its files."""

from __future__ import annotations

import hashlib
import mimetypes
from html import escape
from pathlib import Path

import orjson
from werkzeug.security import safe_join
from werkzeug.wrappers import Request, Response

from nsqadmin_py.options import NsqadminOptions
from nsqadmin_py.web.access import AccessRights
from nsqadmin_py.web.answers import TEXT, uncached
from nsqadmin_py.web.views_api import session_of

_PACKAGE = Path(__file__).parent.parent
STATIC = _PACKAGE / "static"
# The same page in few files, which `make dist` and the image put here; see contrib/page. A checkout has none.
MERGED = _PACKAGE / "page"
_INDEX = "index.html"
_LOADED_LATER = "vendor/uplot.js"  # a quarter of all, and only charts need it
_YEAR_S = 365 * 24 * 3600
_HASH_CHARACTERS = 16
_TYPES = {
    ".js": "text/javascript",
    ".mjs": "text/javascript",
    ".md": "text/plain",
    ".json": "application/json",
}


class Shell:
    """Serves the page and its files. With --dev-static-dir, files are read from there at each request."""

    def __init__(self, options: NsqadminOptions, access: AccessRights) -> None:
        self._options = options
        self._access = access
        self._is_dev = bool(options.dev_static_dir)
        page = STATIC
        if (MERGED / _INDEX).is_file():
            page = MERGED
        self._folder = Path(options.dev_static_dir) if self._is_dev else page
        if (self._folder / _INDEX).is_file():
            self._index = self._folder
        else:
            self._index = page
        # Relative imports of modules stay below this folder, so browsers may cache all files for ever.
        self._version = "dev" if self._is_dev else _digest_of(self._folder)
        self._preloaded = "" if self._is_dev else self._preloads()

    # ---- the page

    def index(self, request: Request, **names: str) -> Response:
        """Answer with the shell, whatever the path is: the page reads it."""
        session = orjson.dumps(session_of(self._options, self._access, request)).decode()
        html = (self._index / _INDEX).read_text("utf-8").replace("{{ preloads }}", self._preloaded)
        values = {"base_path": self._options.base_path, "session": session, "static": self._static}
        for name, value in values.items():
            html = html.replace(f"{{{{ {name} }}}}", escape(value))
        return uncached(html, "text/html; charset=utf-8")

    @property
    def _static(self) -> str:
        return f"{self._options.base_path.rstrip('/')}/static/{self._version}"

    def _preloads(self) -> str:
        """Return links to all modules, so that browsers need not find them one by one."""
        modules = sorted(path.relative_to(self._folder).as_posix() for path in self._folder.rglob("*.js"))
        links = (
            f'<link rel="modulepreload" href="{escape(self._static)}/{name}">'
            for name in modules
            if name != _LOADED_LATER
        )
        return "\n  ".join(links)

    # ---- files

    def asset(self, request: Request, name: str) -> Response:
        """Answer with a file. Its name begins with the version of all files, or has none."""
        version, _, rest = name.partition("/")
        is_current = version == self._version
        path = safe_join(str(self._folder), rest if is_current else name)
        try:
            body = Path(path or "").read_bytes()
        except (OSError, ValueError):  # also for a name that contains a NUL
            return Response("NOT_FOUND", 404, {"Content-Type": TEXT})
        kind = _TYPES.get(Path(name).suffix) or mimetypes.guess_type(name)[0] or "application/octet-stream"
        is_cached = is_current and not self._is_dev
        headers = {
            "Content-Type": f"{kind}; charset=utf-8" if kind.startswith("text/") else kind,
            "Cache-Control": f"public, max-age={_YEAR_S}, immutable" if is_cached else "no-cache",
        }
        return Response(body, 200, headers)


def _digest_of(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:_HASH_CHARACTERS]
