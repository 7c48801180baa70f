"""Who may import whom: the core is pure, the shell imports the core, and only `apps` patches anything."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PACKAGES = [name for name in ("nsqd_py", "nsqlookupd_py", "nsqadmin_py", "tools", "spark") if (ROOT / name).is_dir()]

PURE_NAMES = (
    "batch", "compression", "delivery", "durations", "errors", "expressions", "foreign_json", "guid", "inflight",
    "layers", "literals", "one_line", "pqueues", "times", "tls_level", "version",
)  # fmt: skip
PURE_PUBLISHING_NAMES = ("dispatcher", "failures", "outlet", "publish", "verdict", "waiting", "window")
PURE_CONSUMING_NAMES = ("backoff", "flow", "lane", "rdy", "subscription", "touching")
PURE_CLIENT_NAMES = ("addresses", "discovery", "errors", "handshake", "message", "options", "session")
CORE = sorted(
    [
        *(ROOT / "nsqd_py/protocol").glob("*.py"),
        *(ROOT / "nsqd_py" / f"{name}.py" for name in PURE_NAMES),
        *(ROOT / "nsqd_py/client" / f"{name}.py" for name in PURE_CLIENT_NAMES),
        *(ROOT / "nsqd_py/client/publishing" / f"{name}.py" for name in PURE_PUBLISHING_NAMES),
        *(ROOT / "nsqd_py/client/consuming" / f"{name}.py" for name in PURE_CONSUMING_NAMES),
        ROOT / "nsqd_py/diskqueue/go_files.py",
        ROOT / "nsqd_py/diskqueue/file_index.py",
        ROOT / "nsqd_py/diskqueue/ranges.py",
        ROOT / "nsqd_py/diskqueue/space.py",
        ROOT / "nsqd_py/diskqueue/records.py",
        ROOT / "nsqd_py/diskqueue/messages.py",
        ROOT / "nsqd_py/auth/permissions.py",
        *(ROOT / "nsqlookupd_py" / f"{name}.py" for name in ("names", "parser", "peer", "registry", "room")),
        *(ROOT / "nsqadmin_py/cluster" / f"{name}.py" for name in ("figures", "rows", "model", "views", "recording")),
        *(ROOT / "nsqadmin_py/history" / f"{name}.py" for name in ("rings", "book")),
        *(ROOT / "nsqadmin_py" / f"{name}.py" for name in ("shapes",)),
    ]
)  # fmt: skip
IMPURE = {
    "asyncio", "fcntl", "gevent", "http", "logging", "mmap", "multiprocessing", "os", "pathlib", "queue", "random",
    "secrets", "select", "selectors", "shutil", "signal", "socket", "ssl", "subprocess", "tempfile", "threading",
    "time", "urllib",
}  # fmt: skip
IMPURE_CALLS = {"open", "print", "input", "exec", "eval", "__import__"}


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(path: Path) -> Iterator[str]:
    """Every module that a file imports anywhere; `from a import b` may mean `a` or `a.b`, so both."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            assert node.module is not None
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def sources(*names: str) -> list[Path]:
    return sorted(path for name in names for path in (ROOT / name).rglob("*.py"))


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


CORE_MODULES = {module_name(path) for path in CORE}
ALL_MODULES = {module_name(path) for path in sources("nsqd_py", "nsqlookupd_py", "nsqadmin_py")}


def test_the_lists_are_not_empty() -> None:
    assert len(CORE) >= 15
    assert all(path.exists() for path in CORE)
    assert CORE_MODULES < ALL_MODULES


@pytest.mark.parametrize("path", CORE, ids=relative)
def test_the_core_is_pure(path: Path) -> None:
    """No loop, no socket, no file, no clock, no log, no chance."""
    assert {name.partition(".")[0] for name in imports_of(path)} & IMPURE == set()
    calls = {
        node.func.id
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert calls & IMPURE_CALLS == set()


@pytest.mark.parametrize("path", CORE, ids=relative)
def test_the_core_imports_nothing_of_the_shell(path: Path) -> None:
    packages = {
        "nsqd_py",
        "nsqd_py.protocol",
        "nsqd_py.client",
        "nsqd_py.client.publishing",
        "nsqd_py.auth",
        "nsqd_py.diskqueue",
        "nsqlookupd_py",
        "nsqadmin_py",
        "nsqadmin_py.cluster",
        "nsqadmin_py.history",
    }  # as the place of what is named behind them
    own = {name for name in imports_of(path) if name in ALL_MODULES}
    assert own - CORE_MODULES - packages == set()


@pytest.mark.parametrize("path", sources(*PACKAGES), ids=relative)
def test_no_library_imports_an_app_or_a_test(path: Path) -> None:
    assert {name.partition(".")[0] for name in imports_of(path)} & {"apps", "tests", "bench"} == set()


@pytest.mark.parametrize("path", sources(*PACKAGES), ids=relative)
def test_only_apps_patch_gevent(path: Path) -> None:
    assert not any(name.startswith("gevent.monkey") for name in imports_of(path))
    attributes = {node.attr for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Attribute)}
    assert not any(name.startswith("patch_") or name == "monkey" for name in attributes)


def test_packages_do_nothing_when_they_are_imported() -> None:
    """`import nsqd_py.protocol` must not pull in what another part of a package needs."""
    for path in sources("nsqd_py"):
        if path.name == "__init__.py" and path.parent.name in ("nsqd_py", "protocol", "diskqueue"):
            assert set(imports_of(path)) <= {"__future__", "__future__.annotations"}, path


def test_executors_need_no_gevent() -> None:
    """What Spark's executors import, in a process of its own."""
    modules = sorted(
        name for name in CORE_MODULES if name.startswith(("nsqd_py.protocol", "nsqd_py.diskqueue"))
    )
    assert "nsqd_py.protocol.parser" in modules
    modules.append("nsqd_py.client.blocking.producer")
    lines = [f"import {name}" for name in modules]
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
