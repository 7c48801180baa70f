"""Docstrings tell the truth: an error that one names exists and is raised, and a name in backticks means something."""

from __future__ import annotations

import ast
import builtins
import importlib
import keyword
import re
import sys
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec

from tests.architecture.definitions import (
    BASES,
    CLASSES,
    DOCUMENTED,
    FUNCTIONS,
    TREES,
    Definition,
    Function,
    ancestors,
    callees,
    is_error,
    kinds_of,
    uses_of,
)
from tests.architecture.sources import PACKAGES, nodes_of, own_imports

# How far the rule for errors looks: a function, those that it calls, ... A docstring on the way is believed.
_CALLS_DEEP = 3
# Docstrings say what these refuse.
_PRODUCTS = {"Amazon", "Go", "OpenSSL", "Spark"}

# What is raised in a way that the rule does not see: the definition and the error, and the way.
RAISED_ELSEWHERE = {
    ("nsqd_py.client.session:ClientSession._go_on", "LayerError"): "by the generator that it continues",
    ("nsq_spark.replay.driver:Replay._publish_dead_letters", "Stopped"): "by the observer that it hands on",
}
# Names that the code need not contain, and where they are from.
FOREIGN_NAMES = {
    "RowGroupMetaData.column": "pyarrow",
    "mapInArrow": "PySpark",
    "msg_timeout": "an example of a setting",
    "msg_timeout_ns": "an example of a setting",
    "null": "JSON",
    "pushFilters": "PySpark",
    "storage_options": "deltalake",
    "true": "JSON",
}

# A sentence, or a line of a table of names.
_SENTENCE_END = re.compile(r"(?<=[.;:])\s+|\n\n|\n(?=\w+  +\S)")
_RAISES = re.compile(r"\b[Rr]aises?\b")
_CAPITALISED = re.compile(r"(?<![\w.`'\"-])[A-Z][a-z]\w*\b")
_IN_BACKTICKS = re.compile(r"`([^`\n]+)`")
# `name`, `module.name`, `Class.method`; also as a call with names as arguments.
_NAME = re.compile(r"([^\W\d]\w*(?:\.[^\W\d]\w*)*)(?:\([\w, .=*]*\))?")
_WORD = re.compile(r"[^\W\d]\w*")
# The data path's files, which texts name as they are.
FILES = {"nsqd.dat"}


# ---- errors


@cache
def stated_errors(definition: Definition) -> frozenset[str]:
    """Return the capitalised words after `raises` in its docstring."""
    found: set[str] = set()
    for sentence in _SENTENCE_END.split(definition.docstring):
        if raises := _RAISES.search(sentence):
            found.update(_CAPITALISED.findall(sentence[raises.end() :]))
    return frozenset(found - _PRODUCTS)


@cache
def known_errors(function: Definition, depth: int) -> frozenset[str]:
    """Return the errors that the code of a function names, and those that its callees state or name."""
    found = uses_of(function).errors
    if depth:
        for callee in callees(function):
            found |= stated_errors(callee) | known_errors(callee, depth - 1)
    return frozenset(found)


def may_raise(function: Definition, error: str) -> bool:
    """True if the function may raise the error, as far as its text says."""
    if not kinds_of(error).isdisjoint(known_errors(function, _CALLS_DEEP)):
        return True
    uses = uses_of(function)
    return bool(uses.called or uses.raised or any(uses_of(callee).raised for callee in callees(function)))


def implementations(function: Definition) -> list[Definition]:
    """Return the function, or all of its name if it is only an interface."""
    if not function.is_interface:
        return [function]
    return [each for each in FUNCTIONS if each.name == function.name and not each.is_interface]


def test_the_errors_that_docstrings_name_exist() -> None:
    """Errors of Python and of the project, and those of other packages that the module uses."""
    missing = {
        (str(each), error)
        for each in DOCUMENTED
        for error in stated_errors(each)
        if not is_error(error) and (error in BASES or error not in words_of(each.module))
    }
    assert sorted(missing) == []


def test_the_errors_that_docstrings_name_are_raised() -> None:
    """Those of the project, where the function names them or calls what does."""
    wrong = {
        (str(function), error)
        for function in FUNCTIONS
        for error in stated_errors(function)
        if error in BASES and not any(may_raise(each, error) for each in implementations(function))
    }
    assert sorted(wrong - RAISED_ELSEWHERE.keys()) == []
    assert sorted(RAISED_ELSEWHERE.keys() - wrong) == []


# ---- names in backticks


@cache
def words_of(module: str) -> frozenset[str]:
    """Return the names in the code of a module, and the words in its texts but docstrings."""
    tree = TREES[module]
    docstrings = {
        node.body[0].value
        for node in nodes_of(tree)
        if isinstance(node, ast.Module | ast.ClassDef | Function) and ast.get_docstring(node)
    }
    found: set[str] = set()
    for node in nodes_of(tree):
        match node:
            case ast.Name(name) | ast.Attribute(_, name) | ast.arg(name) | ast.keyword(str(name)):
                found.add(name)
            case ast.FunctionDef(name) | ast.AsyncFunctionDef(name) | ast.ClassDef(name):
                found.add(name)
            case ast.alias(name, other):
                found.update([*name.split("."), other or ""])
            case ast.ImportFrom(str(name)):
                found.update(name.split("."))
            case ast.Constant(str(text)) if node not in docstrings:
                found.update(_WORD.findall(text))
            case ast.Constant(bytes(data)):
                found.update(_WORD.findall(data.decode("latin-1")))
    return frozenset(found)


def modules_near(definition: Definition) -> set[str]:
    """Return its module, those of a room, those where the kinds of its class or the implementations of an interface are,
    and all that these import.
    """
    near = {definition.module}
    if definition.is_room:
        near.update(name for name in TREES if name.startswith(f"{definition.module}."))
    for kind in kinds_of(definition.class_name):
        near.update(each.module for each in CLASSES.get(kind, ()))
    if isinstance(definition.node, Function):
        near.update(each.module for each in implementations(definition))
    return near.union(*map(imported_modules, near))


@cache
def imported_modules(module: str) -> frozenset[str]:
    return frozenset(own_imports(module))


@cache
def members_of(class_name: str) -> frozenset[str]:
    """Return the names in the body of a class and of those that it inherits from, and the attributes that they set."""
    found: set[str] = set()
    for ancestor in ancestors(class_name):
        for definition in CLASSES.get(ancestor, ()):
            found.update(_members(definition))
    return frozenset(found)


def _members(definition: Definition) -> Iterator[str]:
    for each in nodes_of(definition.node):
        match each:
            case ast.FunctionDef(name) | ast.AsyncFunctionDef(name):
                yield name
            case ast.Attribute(ast.Name("self" | "cls"), name, ast.Store()):
                yield name
            case ast.AnnAssign(ast.Name(name)) | ast.Assign([ast.Name(name)]):
                yield name


def defines(module: str, names: list[str]) -> bool:
    """True if a module has a name, or a class with a member; also without names."""
    match names:
        case [class_name, member]:
            found = [each for each in CLASSES.get(class_name, ()) if each.module == module]
            own = {name for each in found for name in _members(each)}
            inherited = {name for base in ancestors(class_name) - {class_name} for name in members_of(base)}
            return member in own or (bool(found) and member in inherited)
        case [name]:
            return name in words_of(module)
    return not names


def is_in_module(parts: list[str]) -> bool:
    """True for `module.name` and for a module, whose own names may be left away: `records.FileHeader`."""
    for size in range(len(parts), 0, -1):
        end, names = "." + ".".join(parts[:size]), parts[size:]
        if any(f".{module}".endswith(end) and defines(module, names) for module in TREES):
            return True
    return False


def is_of_python(parts: list[str]) -> bool:
    """True for keywords, builtins, special methods, and what the standard library has."""
    first, *rest = parts
    if first in sys.stdlib_module_names:
        module = importlib.import_module(first)
        is_room = hasattr(module, "__path__")
        return (
            not rest or hasattr(module, rest[0]) or (is_room and find_spec(f"{first}.{rest[0]}") is not None)
        )
    is_special = first.startswith("__") and first.endswith("__")
    return not rest and (is_special or hasattr(builtins, first) or keyword.iskeyword(first))


def exists(name: str, definition: Definition) -> bool:
    """True if a name of a docstring means something there."""
    parts = name.split(".")
    first = parts[0]
    if first in BASES:
        return len(parts) == 1 or parts[1] in members_of(first)
    if first in PACKAGES and len(parts) > 1:
        return is_in_module(parts)
    near = [words_of(module) for module in modules_near(definition)]
    if all(any(part in words for words in near) for part in parts):
        return True
    is_header = any(name.lower() in words for words in near)  # of HTTP, where case does not matter
    return is_header or is_in_module(parts) or is_of_python(parts) or name in FILES


def test_the_names_in_backticks_exist() -> None:
    missing = {
        (str(each), match[1])
        for each in DOCUMENTED
        for text in _IN_BACKTICKS.findall(each.docstring)
        if (match := _NAME.fullmatch(text)) and not exists(match[1], each)
    }
    assert sorted((where, name) for where, name in missing if name not in FOREIGN_NAMES) == []
    assert sorted(FOREIGN_NAMES.keys() - {name for _, name in missing}) == []


def test_the_rules_can_fail() -> None:
    pin = _definition("nsqd_py.diskqueue.files.open_files:LazyFile.pin")
    for good, bad in (
        ("unpin", "release"),
        ("LazyFile.unpin", "LazyFile.release"),
        ("nsqd_py.queue.topic.Topic.commit", "nsqd_py.queue.topic.Topic.committed"),
        ("records.FileHeader", "records.FileFooter"),
        ("ssl.SSLContext", "ssl.SSLSocketContext"),
    ):
        assert exists(good, pin)
        assert not exists(bad, pin)
    refusing = _definition("nsqd_py.fsck.command:_refusing")
    assert may_raise(refusing, "DataRefused")
    assert not may_raise(refusing, "Refused")


def _definition(name: str) -> Definition:
    (found,) = (each for each in DOCUMENTED if str(each) == name)
    return found
