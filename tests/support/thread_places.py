"""Finds in the source where threads begin or get work, and what a method does with the fields of its object."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

# Calls that start a thread, give one work, or let another thread, a signal or the collector call something: the position
# and the keyword of the callable. Position -1: the whole call is shown.
_CALLS: dict[str, tuple[int, str]] = {
    "start_new_thread": (0, ""),
    "start_joinable_thread": (0, ""),
    "Thread": (1, "target"),
    "Timer": (1, "function"),
    "InheritableThread": (0, "target"),
    "WorkerThread": (2, "call"),
    "ThreadPool": (-1, ""),
    "ThreadPoolExecutor": (-1, ""),
    "DiskThreads": (-1, ""),
    "in_thread": (1, ""),
    "in_thread_while": (2, ""),
    "in_timed_thread": (2, ""),
    "_in_background": (0, ""),
    "to_thread": (0, ""),
    "run_in_executor": (1, ""),
    "call_soon_threadsafe": (0, ""),
    "run_callback_threadsafe": (0, ""),
    "run_coroutine_threadsafe": (0, ""),
    "set_wakeup_fd": (0, ""),
    "signal_handler": (1, ""),
    "finalize": (1, ""),
    "register_at_fork": (-1, ""),
}
# Methods that give a pool work, if they are called on one.
_POOL_METHODS = {"apply": 0, "apply_async": 0, "begin": 0, "spawn": 0, "submit": 0, "map": 0, "imap": 0}
_POOLS = ("threadpool", "pool", "disk_threads", "write_threads", "writer", "threads", "thread()", "executor")
# Others are found by what they are called on, too.
_ON = {("signal", "signal"): 1, ("callbacks", "append"): 0, ("atexit", "register"): 0}
# The clients start their threads with `Backend.spawn`.
_BACKENDS = ("backend", "THREADS")
_LIBRARY_BASES = ("AccumulatorParam",)  # the library calls their methods in a thread of its own


class Place(NamedTuple):
    """A place in the source: its module, the enclosing function, and what a thread calls."""

    module: str
    function: str
    call: str


def _last_name(node: ast.expr) -> str:
    """Return the last name of `a.b.name`, without the types of a generic class."""
    if isinstance(node, ast.Subscript):
        return _last_name(node.value)
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _argument(call: ast.Call, at: int, keyword: str) -> str:
    for given in call.keywords:
        if keyword and given.arg == keyword:
            return ast.unparse(given.value)
    return ast.unparse(call.args[at]) if 0 <= at < len(call.args) else ast.unparse(call)


def _called(call: ast.Call) -> str | None:
    """Return the text of what a thread will call because of this call; None if it has nothing to do with threads."""
    name = _last_name(call.func)
    if name in _CALLS:
        return _argument(call, *_CALLS[name])
    if isinstance(call.func, ast.Attribute):
        owner = ast.unparse(call.func.value)
        if name in _POOL_METHODS and owner.endswith(_POOLS):
            return _argument(call, _POOL_METHODS[name], "")
        if name == "spawn" and owner.endswith(_BACKENDS):
            return _argument(call, 1, "call")
        for (of, method), at in _ON.items():
            if name == method and owner.rpartition(".")[2] == of:
                return _argument(call, at, "")
        if name == "ref" or owner == "weakref":
            return _argument(call, 1, "callback") if len(call.args) > 1 else None
    elif name == "ref" and len(call.args) > 1:
        return _argument(call, 1, "callback")
    # `gevent.spawn(in_thread, pool, work)`, `partial(in_thread, pool)`.
    if call.args and _last_name(call.args[0]) in _CALLS:
        inner = ast.Call(call.args[0], call.args[1:], call.keywords)
        return _argument(inner, *_CALLS[_last_name(inner.func)])
    return None


def places_in(module: str, node: ast.AST, function: str = "") -> Iterator[Place]:
    """Yield the places of a module, whose tree is `node`, or of a part of it, which stands in a function."""
    for child in ast.iter_child_nodes(node):
        inside = function
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inside = f"{function}.{child.name}" if function else child.name
            if child.name == "__del__":
                yield Place(module, inside, "__del__")
            if isinstance(child, ast.ClassDef) and {_last_name(base) for base in child.bases} & {
                *_LIBRARY_BASES
            }:
                yield Place(module, inside, "the library")
        elif isinstance(child, ast.Call):
            call = _called(child)
            if call is not None:
                yield Place(module, function or "<module>", call)
        elif (
            isinstance(child, ast.Attribute)
            and child.attr == "threadpool"
            and "hub" in ast.unparse(child.value)
        ):
            yield Place(module, function or "<module>", ast.unparse(child))
        yield from places_in(module, child, inside)


# ---- classes, and what their methods do


@dataclass(frozen=True)
class ClassNode:
    """A class of a room."""

    node: ast.ClassDef

    @property
    def methods(self) -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef]:
        return {
            each.name: each
            for each in self.node.body
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
        }

    @property
    def names(self) -> set[str]:
        """The names of its fields and methods, without those of its bases."""
        found = {*self.methods}
        for each in self.node.body:
            targets = (
                each.targets
                if isinstance(each, ast.Assign)
                else [each.target]
                if isinstance(each, ast.AnnAssign)
                else []
            )
            found.update(target.id for target in targets if isinstance(target, ast.Name))
        for each in ast.walk(self.node):
            if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store) and _is_self(each.value):
                found.add(each.attr)
        return found

    @property
    def fields_that_change(self) -> set[str]:
        """The fields that are set anew after the object was made, or whose content changes."""
        made_by = {"__init__", "__post_init__"}
        return {
            field
            for name, method in self.methods.items()
            if name not in made_by
            for field in _changed_in(method)
        }


_CHANGES = {
    "add",
    "append",
    "appendleft",
    "clear",
    "discard",
    "extend",
    "insert",
    "pop",
    "popitem",
    "popleft",
    "put",
    "remove",
}
_CHANGES |= {"setdefault", "update"}


def _changed_in(method: ast.AST) -> Iterator[str]:
    """Yield the fields that a method sets, or calls a method of that changes a list, dictionary, set or queue."""
    for node in ast.walk(method):
        if isinstance(node, ast.Attribute) and _is_self(node.value) and not isinstance(node.ctx, ast.Load):
            yield node.attr
        elif isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
            yield from _field(node.value)
        elif (
            isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _CHANGES
        ):
            yield from _field(node.func.value)


def _field(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Attribute) and _is_self(node.value):
        yield node.attr


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def classes_in(tree: ast.Module) -> dict[str, ClassNode]:
    return {node.name: ClassNode(node) for node in tree.body if isinstance(node, ast.ClassDef)}


def fields_of(function: ast.AST) -> set[str]:
    """Return the names of the fields of `self` that a function uses."""
    return {
        node.attr for node in ast.walk(function) if isinstance(node, ast.Attribute) and _is_self(node.value)
    }


_REMOVALS = {"pop", "popleft", "popitem", "remove", "get_nowait"}


def checked_then_acted_on(function: ast.AST) -> set[str]:
    """Return the fields that a function tests in an `if` or `while`, and then removes from: another thread may be faster."""
    found = set()
    for node in ast.walk(function):
        if isinstance(node, ast.If | ast.While | ast.IfExp):
            tested = fields_of(node.test)
            body = node.body if isinstance(node.body, list) else [node.body]
            found |= tested & {field for each in body for field in _removed_from(each)}
    return found


def _removed_from(node: ast.AST) -> Iterator[str]:
    for each in ast.walk(node):
        owner = (
            each.func.value if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute) else None
        )
        if owner is not None and each.func.attr in _REMOVALS:
            yield from _field(owner)
        deleted = each.value if isinstance(each, ast.Subscript) and isinstance(each.ctx, ast.Del) else None
        if deleted is not None:
            yield from _field(deleted)
