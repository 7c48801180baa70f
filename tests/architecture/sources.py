"""The modules of the product as they are written: where they are, their syntax trees, and what they import.

Each file is read and parsed once, and each tree walked once, whatever number of rules look at it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
# Each package, and the folder that it is imported from.
PACKAGES = {
    "nsqd_py": ROOT,
    "nsqlookupd_py": ROOT,
    "nsqadmin_py": ROOT,
    "nsq_apps": ROOT / "apps",
    "nsq_tools": ROOT / "tools",
    "nsq_spark": ROOT / "spark",
    "pyspark_nsq": ROOT / "spark",
}


def module_name(path: Path, folder: Path) -> str:
    parts = path.relative_to(folder).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def modules(*packages: str) -> dict[str, Path]:
    """Return the modules of packages, with their files."""
    return {
        module_name(path, PACKAGES[package]): path
        for package in packages
        for path in sorted((PACKAGES[package] / package).rglob("*.py"))
    }


ALL_MODULES = modules(*PACKAGES)


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def text_of(module: str) -> str:
    return ALL_MODULES[module].read_text("utf-8")


@cache
def tree_of(module: str) -> ast.Module:
    return ast.parse(text_of(module))


@cache
def nodes_of(tree: ast.AST) -> tuple[ast.AST, ...]:
    """Return a node and all below it."""
    return tuple(ast.walk(tree))


def import_nodes(module: str) -> Iterator[ast.Import | ast.ImportFrom]:
    """Yield the import statements of a module, also those for type checkers and those in functions."""
    for node in nodes_of(tree_of(module)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node


def imports_of(module: str) -> Iterator[str]:
    """Yield every module that a module imports; `from a import b` may mean `a` or `a.b`, so both."""
    for node in import_nodes(module):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        else:
            assert node.level == 0, f"{module} imports relatively"
            assert node.module is not None
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def own_imports(module: str) -> Iterator[str]:
    """Yield the modules of the project that a module imports. `from a import b` names `a.b` if that is a module, or `a`."""
    for node in import_nodes(module):
        if isinstance(node, ast.Import):
            named = {alias.name for alias in node.names}
        else:
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            named = {name if name in ALL_MODULES else name.rpartition(".")[0] for name in inner}
        yield from named & ALL_MODULES.keys()
