"""Code says one thing at a time: idioms that pack several into one line or expression stay out of the product.

Each rule finds places in the syntax tree of a module. It has a bound, and an example in which it finds each line that
ends in `# here`, and no other.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeGuard

import pytest

from tests.architecture.sources import ALL_MODULES, nodes_of, relative, text_of, tree_of

# Nodes that have a line.
Found = Iterator[ast.expr | ast.stmt | ast.keyword]

DEFINITIONS = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
COMPUTED = (*COMPREHENSIONS, ast.BinOp, ast.Call, ast.IfExp)
TRUTHS = (ast.BoolOp, ast.Compare)
MANY_CLAUSES = 3
LONG_COLUMNS = 88
COUNTED_TOKENS = (tokenize.NAME, tokenize.NUMBER, tokenize.OP)
# The goal, as of the houses that we admire; it never rises.
MOST_TOKENS_A_LINE = 7.5

# Methods that stand under a second name today, by file and name.
KNOWN_SHORTCUTS = {
    # The distributor's method: it saves a call for each read of a connection with a consumer.
    ("nsqd_py/queue/channel.py", "client_ready")
}


# ---- conditionals


def conditionals_looped_over(tree: ast.Module) -> Found:
    """Yield conditionals over whose result a loop or a comprehension runs."""
    for node in nodes_of(tree):
        if isinstance(node, ast.For | ast.AsyncFor | ast.comprehension) and isinstance(node.iter, ast.IfExp):
            yield node.iter


def conditionals_in_conditionals(tree: ast.Module) -> Found:
    """Yield conditional expressions of which a part is another one."""
    for node in nodes_of(tree):
        if isinstance(node, ast.IfExp):
            parts = (node.test, node.body, node.orelse)
            if any(isinstance(part, ast.IfExp) for part in parts):
                yield node


def conditionals_unpacked(tree: ast.Module) -> Found:
    """Yield conditionals whose result is unpacked with a star, or with two."""
    for node in nodes_of(tree):
        unpacked: list[ast.expr] = []
        if isinstance(node, ast.Starred) or (isinstance(node, ast.keyword) and node.arg is None):
            unpacked = [node.value]
        elif isinstance(node, ast.Dict):
            unpacked = [value for key, value in zip(node.keys, node.values, strict=True) if key is None]
        yield from (value for value in unpacked if isinstance(value, ast.IfExp))


def long_conditionals(tree: ast.Module) -> Found:
    """Yield conditionals, returned or assigned, that are no short line: `if` and two statements are read at a glance."""
    for node in nodes_of(tree):
        if isinstance(node, ast.Return | ast.Assign) and isinstance(node.value, ast.IfExp):
            is_one_line = node.end_lineno == node.lineno
            if not is_one_line or (node.end_col_offset or 0) > LONG_COLUMNS:
                yield node


def products_with_a_truth(tree: ast.Module) -> Found:
    """Yield products that are a list or nothing: `[value] * bool(value)`."""
    for node in nodes_of(tree):
        if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Mult):
            continue
        factors = (node.left, node.right)
        has_list = any(isinstance(factor, ast.List | ast.Tuple) for factor in factors)
        has_truth = any(isinstance(factor, TRUTHS) for factor in factors)
        if any(is_bool_call(factor) for factor in factors) or (has_list and has_truth):
            yield node


def is_bool_call(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "bool"


# ---- comprehensions


def assignments_in_comprehensions(tree: ast.Module) -> Found:
    """Yield assignments with `:=` inside a comprehension."""
    found: dict[int, ast.expr | ast.stmt] = {}
    for node in nodes_of(tree):
        if isinstance(node, COMPREHENSIONS):
            found |= {id(inner): inner for inner in ast.walk(node) if isinstance(inner, ast.NamedExpr)}
    yield from found.values()


def long_comprehensions(tree: ast.Module) -> Found:
    """Yield comprehensions with three or more `for` and `if`."""
    for node in nodes_of(tree):
        if isinstance(node, COMPREHENSIONS):
            clauses = len(node.generators) + sum(len(each.ifs) for each in node.generators)
            if clauses >= MANY_CLAUSES:
                yield node


# ---- assignments


def computed_pairs(tree: ast.Module) -> Found:
    """Yield assignments of several values at once, of which one is computed."""
    for node in nodes_of(tree):
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Tuple):
            continue
        is_computed = any(isinstance(value, COMPUTED) for value in node.value.elts)
        if is_computed and isinstance(node.targets[0], ast.Tuple):
            yield node


def late_constants(tree: ast.Module) -> Found:
    """Yield constants behind the first class or function of a module."""
    is_behind = False
    for node in tree.body:
        if isinstance(node, DEFINITIONS):
            is_behind = True
        elif is_behind and is_constant(node):
            yield node


def is_constant(node: ast.stmt) -> bool:
    """True if the statement gives a value to a name in capitals."""
    if isinstance(node, ast.Assign):
        target = node.targets[0]
    elif isinstance(node, ast.AnnAssign):
        target = node.target
    else:
        return False
    return isinstance(target, ast.Name) and target.id.lstrip("_").isupper()


# ---- methods


def fields_of_a_broker(tree: ast.AST) -> Iterator[ast.stmt]:
    """Yield assignments to a field of a broker, which is whole when it is made."""
    for node in nodes_of(tree):
        if not isinstance(node, ast.Assign | ast.AnnAssign):
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        owners = [target.value for target in targets if isinstance(target, ast.Attribute)]
        names = {
            owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "") for owner in owners
        }
        if names & {"broker", "_broker"}:
            yield node


def methods_bound_again(tree: ast.Module) -> Found:
    """Yield assignments that give a method a second name (`self.x = self.y`), or a method's name another value."""
    found: dict[int, ast.expr | ast.stmt] = {}
    for node in nodes_of(tree):
        if not isinstance(node, ast.ClassDef):
            continue
        methods = {each.name for each in node.body if is_method(each)}
        for inner in ast.walk(node):
            if isinstance(inner, ast.Assign | ast.AnnAssign) and binds_method(inner, methods):
                found[id(inner)] = inner
    yield from found.values()


def is_method(node: ast.AST) -> TypeGuard[ast.FunctionDef | ast.AsyncFunctionDef]:
    """True for a function that is called, unlike a property. A decorator may make anything else of it."""
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.decorator_list


def binds_method(node: ast.Assign | ast.AnnAssign, methods: set[str]) -> bool:
    """True if an attribute of `self` gets a method, of `self` or of one of its attributes, or hides a method."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    own = {target.attr for target in targets if is_of_self(target)}
    if not own or not isinstance(node.value, ast.expr):
        return False
    value = node.value
    if not isinstance(value, ast.Attribute):
        return not own.isdisjoint(methods)
    is_near = is_of_self(value) or is_of_self(value.value)
    is_bound = value.attr in METHOD_NAMES or (is_of_self(value) and value.attr in methods)
    return is_near and is_bound or not own.isdisjoint(methods)


def is_of_self(node: ast.AST) -> TypeGuard[ast.Attribute]:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"


def second_name(node: ast.AST) -> str:
    """Return the attribute that an assignment sets."""
    assert isinstance(node, ast.Assign | ast.AnnAssign)
    target = node.targets[0] if isinstance(node, ast.Assign) else node.target
    return target.attr if isinstance(target, ast.Attribute) else ""


def only_methods(trees: Iterable[ast.Module]) -> set[str]:
    """Return the names that are methods wherever a class has them, and never fields, properties or variables of it."""
    methods: set[str] = set()
    others: set[str] = set()
    for tree in trees:
        for node in nodes_of(tree):
            if isinstance(node, ast.ClassDef):
                methods |= {each.name for each in node.body if is_method(each)}
                others |= set(fields_of(node))
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                others.add(node.attr)
    return methods - others


def fields_of(node: ast.ClassDef) -> Iterator[str]:
    """Yield the names of what stands in a class and is no method."""
    for each in node.body:
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
            yield each.target.id
        elif isinstance(each, ast.Assign):
            yield from (target.id for target in each.targets if isinstance(target, ast.Name))
        elif isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and each.decorator_list:
            yield each.name


# ---- the rules


class Rule(NamedTuple):
    """`find` yields places; at most `most` of them may be in the product."""

    find: Callable[[ast.Module], Found]
    most: int
    example: str


RULES = [
    Rule(
        conditionals_looped_over,
        0,
        """
for each in all_of_them if is_wanted else ():  # here
    names = [one.name for one in (found if found else known)]  # here
chosen = all_of_them if is_wanted else ()
for each in chosen or ():
    pass
""",
    ),
    Rule(
        conditionals_in_conditionals,
        0,
        """
kind = "full" if left == 0 else "low" if left < 9 else "well"  # here
kind = ("a" if one else "b") if two else "c"  # here
kind = "a" if one else call("b" if two else "c")
""",
    ),
    Rule(
        conditionals_unpacked,
        0,
        """
words = ["first", *(more if has_more else ())]  # here
call(**(named if named else {}))  # here
call({**({"a": 1} if one else {})})  # here
words = ["first", *more]
call(**named, word="a" if one else "b")
""",
    ),
    Rule(
        long_conditionals,
        32,
        """
found = the_first_of_them + the_others_of_them if the_last_of_them else the_others_of_them + the_last_of_them  # here
found = the_first_of_them if the_last_of_them else the_others_of_them
def short(found):
    return found[0] if found else None
def long(the_first_of_them, the_others_of_them, the_last_of_them):
    return the_first_of_them + the_others_of_them if the_last_of_them else the_others_of_them  # here
def of_several_lines(found):
    return (  # here
        found[0]
        if found else None
    )
""",
    ),
    Rule(
        products_with_a_truth,
        0,
        """
texts = [text] * bool(text)  # here
texts = [text] * (size > 0)  # here
texts = bool(size) * size  # here
total = count * size
rates = [0.0] * len(names)
""",
    ),
    Rule(
        assignments_in_comprehensions,
        0,
        """
found = [one for key in keys if (one := table.get(key))]  # here
found = {key: (one := key) for key in keys}  # here
if (one := table.get(key)) is not None:
    pass
""",
    ),
    Rule(
        long_comprehensions,
        0,
        """
names = {channel.name for topic in topics if topic.is_open for channel in topic.channels}  # here
names = {name: one for one in rows if one if one.name}  # here
names = {channel.name for topic in topics for channel in topic.channels}
""",
    ),
    Rule(
        computed_pairs,
        0,
        """
first, last = min(numbers), max(numbers)  # here
self.start, size = 0, end - start  # here
first, last = last, first
start, end = (0, 1)
first, last = ends(numbers)
""",
    ),
    Rule(
        late_constants,
        40,
        """
FIRST = 1
def work(): pass
_SECOND_S = 2.0  # here
THIRD: int = 3  # here
variable = 4
class Thing:
    OF_THE_CLASS = 5
""",
    ),
    Rule(
        methods_bound_again,
        0,
        """
class Channel:
    def __init__(self, log):
        self.add = self._add  # here
        self.send = None  # here
        self.write: object = self.log.write_to_example  # here
        self.log = log
        self.on_end = log.write_to_example
        self.log.on_end = self._add
    def _add(self): pass
    def send(self): pass
class Log:
    def write_to_example(self): pass
""",
    ),
    Rule(
        fields_of_a_broker,
        0,
        """
broker.epoch = 1  # here
self._broker.replication = role  # here
self.broker.tls: object = None  # here
self.broker = broker
self._broker.options.data_path = ""
""",
    ),
]
MODULES = {relative(path): name for name, path in ALL_MODULES.items()}
TREES = {file: tree_of(name) for file, name in MODULES.items()}
METHOD_NAMES = only_methods(TREES.values()) | {"write_to_example"}


def id_of(rule: Rule) -> str:
    return rule.find.__name__


@pytest.mark.parametrize("rule", RULES, ids=id_of)
def test_a_rule_finds_what_it_is_for_and_nothing_else(rule: Rule) -> None:
    planted = [number for number, line in enumerate(rule.example.splitlines(), start=1) if "# here" in line]
    assert sorted(node.lineno for node in rule.find(ast.parse(rule.example))) == planted


@pytest.mark.parametrize("rule", RULES, ids=id_of)
def test_the_product_does_not_pack(rule: Rule) -> None:
    found = [
        f"{file}:{node.lineno}"
        for file, tree in TREES.items()
        for node in rule.find(tree)
        if not is_known(rule, file, node)
    ]
    places = "\n".join(sorted(found))
    assert len(found) <= rule.most, f"{id_of(rule)}: {len(found)} places, at most {rule.most}:\n{places}"


def test_the_product_has_room_to_breathe() -> None:
    """A comma and a string cost nothing, so that longer messages and tables of texts count for no density."""
    tokens = 0
    line_count = 0
    for file, tree in TREES.items():
        read_line = io.StringIO(text_of(MODULES[file])).readline
        code = [token for token in tokenize.generate_tokens(read_line) if is_code(token)]
        tokens += sum(token.type in COUNTED_TOKENS and token.string != "," for token in code)
        lines = {number for token in code for number in range(token.start[0], token.end[0] + 1)}
        line_count += len(lines.difference(lines_of_docstrings(tree)))
    density = tokens / line_count
    assert density <= MOST_TOKENS_A_LINE, f"{tokens:,} tokens in {line_count:,} lines: {density:.2f} a line"


def is_code(token: tokenize.TokenInfo) -> bool:
    return token.type not in (
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENDMARKER,
    )


def lines_of_docstrings(tree: ast.Module) -> Iterator[int]:
    """Yield the numbers of the lines of docstrings."""
    for node in nodes_of(tree):
        if (
            isinstance(node, (ast.Module, *DEFINITIONS))
            and node.body
            and ast.get_docstring(node, clean=False)
        ):
            text = node.body[0]
            yield from range(text.lineno, (text.end_lineno or text.lineno) + 1)


def is_known(rule: Rule, file: str, node: ast.AST) -> bool:
    return rule.find is methods_bound_again and (file, second_name(node)) in KNOWN_SHORTCUTS
