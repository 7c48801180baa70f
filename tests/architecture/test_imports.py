"""Rules that import-linter cannot express; those that it can are contracts in setup.cfg."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

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
LIBRARIES = [package for package in PACKAGES if package != "nsq_apps"]
ROOMS_WITHOUT_IO = ("nsqd_py/pqueues", "nsqd_py/protocol", "nsqd_py/queue")
IMPURE_CALLS = {"open", "print", "input", "exec", "eval", "__import__"}


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


def import_nodes(path: Path) -> Iterator[ast.Import | ast.ImportFrom]:
    """Yield the import statements of a file, also those for type checkers and those in functions."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node


def imports_of(path: Path) -> Iterator[str]:
    """Yield every module that a file imports; `from a import b` may mean `a` or `a.b`, so both."""
    for node in import_nodes(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        else:
            assert node.level == 0, f"{path} imports relatively"
            assert node.module is not None
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def own_imports(path: Path) -> Iterator[str]:
    """Yield the modules of the project that a file imports. `from a import b` names `a.b` if that is a module, or `a`."""
    for node in import_nodes(path):
        if isinstance(node, ast.Import):
            named = {alias.name for alias in node.names}
        else:
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            named = {name if name in ALL_MODULES else name.rpartition(".")[0] for name in inner}
        yield from named & ALL_MODULES.keys()


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


def sources(*packages: str) -> list[Path]:
    return list(modules(*packages).values())


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_the_lists_are_not_empty() -> None:
    assert all(any(name.startswith(package) for name in ALL_MODULES) for package in PACKAGES)
    assert all((ROOT / room).is_dir() for room in ROOMS_WITHOUT_IO)


def test_circles_are_found() -> None:
    imports = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": {"e"}, "f": {"a"}}
    assert circles(imports) == [("a", "b", "c"), ("e",)]


def test_no_modules_import_each_other() -> None:
    """Neither directly nor through others. Imports for type checkers and those in functions count."""
    imports = {name: set(own_imports(path)) for name, path in ALL_MODULES.items()}
    assert sum(map(len, imports.values())) > len(imports)
    assert circles(imports) == []


@pytest.mark.parametrize("path", sources(*PACKAGES), ids=relative)
def test_nobody_imports_the_private_names_of_another_file(path: Path) -> None:
    imported = [
        alias.name for node in import_nodes(path) if isinstance(node, ast.ImportFrom) for alias in node.names
    ]
    assert [name for name in imported if name.startswith("_") and not name.startswith("__")] == []


@pytest.mark.parametrize(
    "path", [path for room in ROOMS_WITHOUT_IO for path in sorted((ROOT / room).glob("*.py"))], ids=relative
)
def test_rooms_without_io_open_and_print_nothing(path: Path) -> None:
    calls = {
        node.func.id
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert calls & IMPURE_CALLS == set()


@pytest.mark.parametrize("path", sources(*LIBRARIES), ids=relative)
def test_no_library_imports_a_test_or_a_benchmark(path: Path) -> None:
    assert {name.partition(".")[0] for name in imports_of(path)} & {"tests", "bench"} == set()


@pytest.mark.parametrize("path", sources(*LIBRARIES), ids=relative)
def test_only_apps_patch_gevent(path: Path) -> None:
    assert not any(name.startswith("gevent.monkey") for name in imports_of(path))
    attributes = {
        node.attr for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Attribute)
    }
    assert not any(name.startswith("patch_") or name == "monkey" for name in attributes)


def test_packages_do_nothing_when_they_are_imported() -> None:
    """`import nsqd_py.protocol` must not pull in what another part of a package needs."""
    for path in sources("nsqd_py"):
        if path.name == "__init__.py" and path.parent.name in ("protocol", "diskqueue"):
            assert set(imports_of(path)) <= {"__future__", "__future__.annotations"}, path
    code = "import sys, nsqd_py; print([name for name in sys.modules if name.startswith('nsqd_py.')])"
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    assert run.stdout.strip() == "[]"


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
    run = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert run.stdout.strip() == "[]"


def test_the_queue_needs_no_event_loop_file_or_logger() -> None:
    code = "import nsqd_py.queue.expiry, nsqd_py.queue.topic, sys; print(*sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    loaded = set(run.stdout.split())
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
