"""The modules of the product as they are written: their docstrings, what they define, and what each function may raise.

Nothing is imported. Names are resolved as far as a reader can do it who does not run the code: those of the module,
imported ones, `self.name`, `Class.name`, and attributes of parameters whose annotation is a class of the project. Of any
other attribute only the name is known: it may mean each function of this name.
"""

from __future__ import annotations

import ast
import builtins
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache

from tests.architecture.sources import ALL_MODULES, nodes_of, tree_of

Function = ast.FunctionDef | ast.AsyncFunctionDef
Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef

# A name that more functions have, such as `get`, says too little about what is called.
_MOST_NAMESAKES = 8

TREES = {name: tree_of(name) for name in ALL_MODULES}


@dataclass(frozen=True, eq=False)
class Definition:
    """A module, class or function; `path` has the names of the classes and functions that it is in, and its own."""

    module: str
    path: tuple[str, ...]
    node: Documented
    class_name: str = ""

    def __str__(self) -> str:
        return ":".join(filter(None, [self.module, ".".join(self.path)]))

    @property
    def name(self) -> str:
        return self.path[-1]

    @property
    def docstring(self) -> str:
        return ast.get_docstring(self.node) or ""

    @property
    def is_room(self) -> bool:
        return ALL_MODULES[self.module].name == "__init__.py"

    @property
    def is_interface(self) -> bool:
        """True if there is no code: only a docstring, and `raise NotImplementedError`."""
        return all(
            (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant))
            or ast.unparse(each) == "raise NotImplementedError"
            for each in self.node.body
        )


def _definitions(
    module: str, node: ast.AST, path: tuple[str, ...] = (), class_name: str = ""
) -> Iterator[Definition]:
    for inner in ast.iter_child_nodes(node):
        if isinstance(inner, ast.ClassDef):
            yield Definition(module, (*path, inner.name), inner, inner.name)
            yield from _definitions(module, inner, (*path, inner.name), inner.name)
        elif isinstance(inner, Function):
            yield Definition(module, (*path, inner.name), inner, class_name)
            yield from _definitions(module, inner, (*path, inner.name), class_name)
        else:
            yield from _definitions(module, inner, path, class_name)


MODULES = {name: Definition(name, (), tree) for name, tree in TREES.items()}
INNER = [inner for name, tree in TREES.items() for inner in _definitions(name, tree)]
FUNCTIONS = [each for each in INNER if isinstance(each.node, Function)]
DOCUMENTED = [each for each in (*MODULES.values(), *INNER) if each.docstring]

_functions: dict[str, list[Definition]] = defaultdict(list)  # by name
_methods: dict[str, list[Definition]] = defaultdict(list)  # by class
for _each in FUNCTIONS:
    _functions[_each.name].append(_each)
    _methods[_each.class_name].append(_each)


def last_name(node: ast.AST) -> str:
    """Return the name of a class as it is written somewhere: `b` of `a.b[T]`."""
    match node:
        case ast.Subscript(value):
            return last_name(value)
        case ast.Attribute(_, name) | ast.Name(name) | ast.Constant(str(name)):
            return name
    return ""


# ---- classes. Two of one name count as one.

CLASSES: dict[str, list[Definition]] = {}
BASES: dict[str, set[str]] = {}
for _each in INNER:
    if isinstance(_each.node, ast.ClassDef):
        CLASSES.setdefault(_each.name, []).append(_each)
        BASES.setdefault(_each.name, set()).update(map(last_name, _each.node.bases))


@cache
def ancestors(name: str) -> frozenset[str]:
    """Return the class and all that it inherits from."""
    found = {name}
    to_visit = [name]
    while to_visit:
        new = BASES.get(to_visit.pop(), set()) - found
        found |= new
        to_visit += new
    return frozenset(found)


@cache
def kinds_of(name: str) -> frozenset[str]:
    """Return the class and all that inherit from it."""
    return frozenset([name, *(other for other in BASES if name in ancestors(other))])


def is_error(name: str) -> bool:
    """True for an exception of Python or of the project."""
    found = (getattr(builtins, ancestor, None) for ancestor in ancestors(name))
    return any(isinstance(kind, type) and issubclass(kind, BaseException) for kind in found)


# ---- what a function may raise


@dataclass(frozen=True)
class Uses:
    """What the code of a function names.

    names       alone, such as `check`
    methods     (class, name) where the class is known
    attributes  of all other values
    called      parameters and variables that it calls; only a run knows what they are
    raised      values that it raises, which were made elsewhere
    """

    names: set[str] = field(default_factory=set)
    methods: set[tuple[str, str]] = field(default_factory=set)
    attributes: set[str] = field(default_factory=set)
    called: set[str] = field(default_factory=set)
    raised: set[str] = field(default_factory=set)

    @property
    def errors(self) -> set[str]:
        return {name for name in self.names | self.attributes if is_error(name)}


@cache
def uses_of(function: Definition) -> Uses:
    node = function.node
    assert isinstance(node, Function)
    classes = {name: name for name in BASES} | {"self": function.class_name, "cls": function.class_name}
    variables = set()
    for argument in ast.walk(node.args):
        if isinstance(argument, ast.arg):
            variables.add(argument.arg)
            if argument.annotation is not None and last_name(argument.annotation) in BASES:
                classes[argument.arg] = last_name(argument.annotation)
    code = [inner for each in (*node.decorator_list, *node.body) for inner in ast.walk(each)]
    variables |= {each.id for each in code if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
    passed_over = set(_only_compared(code))
    uses = Uses()
    for each in code:
        if each in passed_over:
            continue
        match each:
            case ast.Name(name):
                uses.names.add(name)
            case ast.Attribute(ast.Name(owner), name) if classes.get(owner):
                uses.methods.add((classes[owner], name))
            case ast.Attribute(_, name):
                uses.attributes.add(name)
            case ast.Subscript(ast.Name(owner)) if classes.get(owner):
                uses.methods.add((classes[owner], "__getitem__"))
            case ast.Call(ast.Name(name)) if name in variables:
                uses.called.add(name)
        match each:
            case ast.Raise(ast.Name(name) | ast.Attribute(_, name)) if not is_error(name):
                uses.raised.add(name)
    return uses


def _only_compared(code: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Yield the names of errors that are caught, and of classes that a value or a variable is said to have."""
    for each in code:
        match each:
            case ast.ExceptHandler(ast.AST() as kinds):
                yield from ast.walk(kinds)
            case ast.Call(ast.Name("isinstance" | "suppress"), arguments):
                yield from (inner for argument in arguments for inner in ast.walk(argument))
            case ast.AnnAssign(_, annotation):
                yield from ast.walk(annotation)


@cache
def imported(module: str) -> dict[str, tuple[str, str]]:
    """Return where the names that a module imports are from."""
    return {
        alias.asname or alias.name: (node.module or "", alias.name)
        for node in nodes_of(TREES[module])
        if isinstance(node, ast.ImportFrom) and node.module in TREES
        for alias in node.names
    }


def _own_functions(module: str, name: str) -> list[Definition]:
    return [each for each in _functions[name] if each.module == module and not each.class_name]


def _special_methods(class_name: str) -> list[Definition]:
    """Return the methods that Python calls: a class that is named is made, entered, called or iterated over."""
    return [
        each
        for kind in ancestors(class_name)
        for each in _methods[kind]
        if each.name.startswith("__") and kind in BASES
    ]


def _methods_of(class_name: str, names: Container[str]) -> list[Definition]:
    """Return the methods of these names in a class, in those that it inherits from and in those that inherit from it."""
    if class_name not in BASES:
        return []
    family = ancestors(class_name) | kinds_of(class_name)
    return [each for kind in family for each in _methods[kind] if each.name in names]


@cache
def callees(function: Definition) -> frozenset[Definition]:
    """Return the functions that a function may call."""
    uses = uses_of(function)
    found: list[Definition] = []
    for name in uses.names:
        module, original = imported(function.module).get(name, (function.module, name))
        while original in imported(module):  # it only passes the name on
            module, original = imported(module)[original]
        found += _own_functions(module, original)
        found += _special_methods(original)
        found += _methods_of(original, uses.attributes)
    unknown = set(uses.attributes)
    for class_name, name in uses.methods:
        methods = _methods_of(class_name, {name})
        found += methods
        if all(each.is_interface for each in methods):
            unknown.add(name)
    for name in unknown:
        if len(_functions[name]) <= _MOST_NAMESAKES:
            found += _functions[name]
        found += _special_methods(name)
    return frozenset(found)
