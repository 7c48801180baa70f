"""Rules that import-linter cannot express; those that it can are contracts in setup.cfg."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Mapping

import pytest

from tests.architecture.sources import (
    ALL_MODULES,
    PACKAGES,
    ROOT,
    import_nodes,
    imports_of,
    modules,
    nodes_of,
    own_imports,
    relative,
    tree_of,
)

LIBRARIES = [package for package in PACKAGES if package != "nsq_apps"]
ROOMS_WITHOUT_IO = ("nsqd_py/pqueues", "nsqd_py/protocol", "nsqd_py/queue")
IMPURE_CALLS = {"open", "print", "input", "exec", "eval", "__import__"}


def reachable(start: str, imports: Mapping[str, set[str]]) -> set[str]:
    """Return the modules that `start` imports, and those that these import."""
    found: set[str] = set()
    to_visit = [start]
    while to_visit:
        new = imports[to_visit.pop()] - found
        found |= new
        to_visit += new
    return found


def circles(imports: Mapping[str, set[str]]) -> list[tuple[str, ...]]:
    """Return the groups of modules that import each other, directly or through others: strongly connected components."""
    reached = {name: reachable(name, imports) for name in imports}
    groups = {
        tuple(sorted(other for other in reached[name] if name in reached[other]))
        for name in imports
        if name in reached[name]
    }
    return sorted(groups)


def printed_by(code: str) -> str:
    """Run a program in a fresh process, and return what it prints."""
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    return run.stdout.strip()


def test_the_lists_are_not_empty() -> None:
    assert all(any(name.startswith(package) for name in ALL_MODULES) for package in PACKAGES)
    assert all((ROOT / room).is_dir() for room in ROOMS_WITHOUT_IO)


def test_circles_are_found() -> None:
    imports = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": {"e"}, "f": {"a"}}
    assert circles(imports) == [("a", "b", "c"), ("e",)]


def test_no_modules_import_each_other() -> None:
    """Neither directly nor through others. Imports for type checkers and those in functions count."""
    imports = {name: set(own_imports(name)) for name in ALL_MODULES}
    assert sum(map(len, imports.values())) > len(imports)
    assert circles(imports) == []


def test_nobody_imports_the_private_names_of_another_file() -> None:
    imported = {
        (module, alias.name)
        for module in ALL_MODULES
        for node in import_nodes(module)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    is_private = re.compile(r"_(?!_)").match
    assert sorted((module, name) for module, name in imported if is_private(name)) == []


def test_rooms_without_io_open_and_print_nothing() -> None:
    modules = [name for name, path in ALL_MODULES.items() if relative(path.parent) in ROOMS_WITHOUT_IO]
    calls = {
        (module, node.func.id)
        for module in modules
        for node in nodes_of(tree_of(module))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert sorted((module, name) for module, name in calls if name in IMPURE_CALLS) == []


@pytest.mark.parametrize("package", LIBRARIES)
def test_no_library_imports_a_test_or_a_benchmark(package: str) -> None:
    imported = {(module, name) for module in modules(package) for name in imports_of(module)}
    assert sorted(each for each in imported if each[1].partition(".")[0] in ("tests", "bench")) == []


@pytest.mark.parametrize("package", LIBRARIES)
def test_only_apps_patch_gevent(package: str) -> None:
    for module in modules(package):
        assert not any(name.startswith("gevent.monkey") for name in imports_of(module)), module
        attributes = {node.attr for node in nodes_of(tree_of(module)) if isinstance(node, ast.Attribute)}
        assert not any(name.startswith("patch_") or name == "monkey" for name in attributes), module


def test_packages_do_nothing_when_they_are_imported() -> None:
    """`import nsqd_py.protocol` must not pull in what another part of a package needs."""
    for package in ("nsqd_py.protocol", "nsqd_py.diskqueue"):
        assert set(imports_of(package)) <= {"__future__", "__future__.annotations"}, package
    code = "import sys, nsqd_py; print([name for name in sys.modules if name.startswith('nsqd_py.')])"
    assert printed_by(code) == "[]"


def test_executors_need_no_gevent() -> None:
    """Import what Spark's executors import, in a fresh process."""
    named = [name for name in ALL_MODULES if name.startswith("nsqd_py.protocol.")]
    assert "nsqd_py.protocol.parser" in named
    named += [
        "nsqd_py.diskqueue.records",
        "nsqd_py.diskqueue.messages",
        "nsqd_py.client.blocking.publishing_core",
        "nsqd_py.cluster.access",
    ]
    lines = [f"import {name}" for name in named]
    lines += [
        "import sys",
        "print(sorted(name for name in sys.modules if name.split('.')[0] in ('gevent', 'greenlet')))",
    ]
    assert printed_by("\n".join(lines)) == "[]"


def test_the_queue_needs_no_event_loop_file_or_logger() -> None:
    code = "import nsqd_py.queue.expiry, nsqd_py.queue.topic, sys; print(*sys.modules)"
    loaded = set(printed_by(code).split())
    assert "nsqd_py.queue.delivery" in loaded
    assert (
        loaded
        & {
            "gevent",
            "greenlet",
            "socket",
            "logging",
            "mmap",
            "threading",
            "nsqd_py.runtime.logs.daemon_log",
            "nsqd_py.diskqueue.files.log_file",
        }
        == set()
    )
