"""One script of the page's ES modules: a browser loads it in one request in place of fifty. Pure.

Each module becomes a function that returns its exports, and runs once, after the modules that it imports. Only those
forms of import and export are known that the page and its libraries have; all others are refused.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping

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
