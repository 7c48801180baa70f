"""Predicates in SQL over the columns and over `json.field`, which are the fields of bodies that are JSON.

`json` is a struct that Spark parses of the body, with just the fields that the predicate names: one parse a message,
however many fields there are. Their types follow from how they are used: `json.user.id = 3` is a number,
`json.level = 'error'` a text, `json.is_paid` alone a truth value. What is used in no such way is a text, also where
the body has a number, an object or an array there. A field that a body does not have, or of another type, is null.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from spark.replay.errors import BadPredicate
from spark.schema import COLUMNS

JSON = "json"

_NUMBER, _TEXT, _TRUTH = "DOUBLE", "STRING", "BOOLEAN"
# A double holds no more digits than this; ids that are longer are compared as decimals.
_LONG_NUMBER = "DECIMAL(38, 0)"
_MOST_DIGITS = 15

_TOKEN = re.compile(
    r"""(?P<space>\s+|--[^\n]*|/\*.*?\*/)
    |(?P<text>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
    |(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[A-Za-z]*)
    |(?P<path>(?i:json)(?:\s*\.\s*(?:\w+|`[^`]+`)|\s*\[\s*\d+\s*\])+)
    |(?P<word>`[^`]+`|[^\W\d]\w*(?:\s*\.\s*(?:\w+|`[^`]+`))*)
    |(?P<sign><=>|<>|!=|<=|>=|==|\|\||.)""",
    re.VERBOSE | re.DOTALL,
)
_STEP = re.compile(r"\.\s*(\w+|`[^`]+`)|\[\s*(\d+)\s*\]")
_COMPARISONS = frozenset(("=", "==", "<=>", "!=", "<>", "<", "<=", ">", ">="))
_ARITHMETIC = frozenset("+-*/%")
_TRUTHS = frozenset(("TRUE", "FALSE"))
_CONNECTIVES = frozenset(("AND", "OR", "NOT"))
# What has another value each time: functions, and those that are one without parentheses too.
_CHANGING_CALLS = frozenset(
    ("rand", "randn", "random", "randstr", "uniform", "uuid", "shuffle", "now", "current_timestamp", "current_date",
     "current_time", "curdate", "localtimestamp", "monotonically_increasing_id", "spark_partition_id",
     "input_file_name")
)  # fmt: skip
_CHANGING_WORDS = frozenset(("current_timestamp", "current_date", "current_time", "localtimestamp"))
_SUGGESTION = re.compile(r" Did you mean one of the following\? \[[^\]]*\]\.")


class _Token(NamedTuple):
    kind: str
    text: str

    @property
    def word(self) -> str:
        return self.text.upper()


@dataclass(slots=True)
class _Node:
    """A value in a body: an object with fields, an array with items, or neither."""

    type: str = ""
    fields: dict[str, _Node] = field(default_factory=dict)
    items: _Node | None = None

    def ddl(self) -> str:
        if self.fields:
            inner = ", ".join(f"`{name}`: {node.ddl()}" for name, node in self.fields.items())
            return f"STRUCT<{inner}>"
        if self.items is not None:
            return f"ARRAY<{self.items.ddl()}>"
        return self.type or _TEXT


def names_in(predicate: str) -> set[str]:
    """Every word in it, in lower case: columns are among them."""
    return {token.text.strip("`").lower() for token in _tokens(predicate) if token.kind == "word"}


def check_is_steady(predicate: str) -> None:
    """Raises BadPredicate for one that another try, or a replay that goes on, would decide in another way."""
    tokens = [token for token in _tokens(predicate) if token.kind != "space"]
    for place, token in enumerate(tokens):
        word = token.text.lower()
        is_call = _token(tokens, place + 1).text == "("
        if token.kind == "word" and word in (_CHANGING_CALLS if is_call else _CHANGING_WORDS):
            raise BadPredicate(
                f"{token.text}{'()' if is_call else ''} has another value each time: a replay that goes on would "
                "choose other messages; use --sample to take some of them, --start and --end for times"
            )


def reason(spark_says: str) -> str:
    """Why a predicate cannot be used, in a line, with our columns where Spark suggests some."""
    line = spark_says.strip().partition("\n")[0]
    return _SUGGESTION.sub(f" There are {', '.join(column.name for column in COLUMNS)}, and json.field.", line)


def json_schema(predicate: str) -> str | None:
    """The type of `json`, as DDL of Spark; None where the predicate names no field of it. Raises BadPredicate."""
    tokens = [token for token in _tokens(predicate) if token.kind != "space"]
    root = _Node()
    for place, token in enumerate(tokens):
        if token.kind == "path":
            _add(root, token.text, _used_as(tokens, place))
    return root.ddl() if root.fields else None


def _tokens(predicate: str) -> Iterator[_Token]:
    for match in _TOKEN.finditer(predicate):
        assert match.lastgroup is not None
        yield _Token(match.lastgroup, match.group())


def _add(root: _Node, path: str, used_as: str) -> None:
    node = root
    for name, index in _STEP.findall(path):
        if index:
            if node is root:
                raise BadPredicate(f"{path}: a body that is an array has no fields")
            node.items = node.items or _Node()
            node = node.items
        else:
            node = node.fields.setdefault(name.strip("`"), _Node())
    node.type = _common(node.type, used_as)


def _common(one: str, other: str) -> str:
    """Of a field that is used twice."""
    if not one or not other or one == other:
        return one or other
    return _LONG_NUMBER if {one, other} == {_NUMBER, _LONG_NUMBER} else _TEXT


def _used_as(tokens: Sequence[_Token], place: int) -> str:
    """What the words around a field make of it; "" where they make nothing."""
    before, after = _token(tokens, place - 1), _token(tokens, place + 1)
    if after.text in _COMPARISONS:
        return _type_of(_skip_sign(tokens, place + 2))
    if before.text in _COMPARISONS:
        return _type_of(_token(tokens, place - 2))
    if before.text in _ARITHMETIC or after.text in _ARITHMETIC:
        return _NUMBER
    return _used_with_word(tokens, place, before, after)


def _used_with_word(tokens: Sequence[_Token], place: int, before: _Token, after: _Token) -> str:
    skipped = 2 if after.word == "NOT" else 1
    word = _token(tokens, place + skipped).word
    if word == "IN":
        return _type_of(_skip_sign(tokens, place + skipped + 2))
    if word == "BETWEEN":
        return _type_of(_skip_sign(tokens, place + skipped + 1))
    if after.word == "IS":
        what = _token(tokens, place + 2)
        what = _token(tokens, place + 3) if what.word == "NOT" else what
        return _TRUTH if what.word in _TRUTHS else ""
    is_function = before.text == "(" and _token(tokens, place - 2).kind == "word" and not _connects(tokens, place - 2)
    begins = before.text in ("", "(") or before.word in _CONNECTIVES
    ends = after.text in ("", ")") or after.word in _CONNECTIVES
    return _TRUTH if begins and ends and not is_function else ""


def _connects(tokens: Sequence[_Token], place: int) -> bool:
    return _token(tokens, place).word in _CONNECTIVES


def _token(tokens: Sequence[_Token], place: int) -> _Token:
    return tokens[place] if 0 <= place < len(tokens) else _Token("", "")


def _skip_sign(tokens: Sequence[_Token], place: int) -> _Token:
    token = _token(tokens, place)
    return _token(tokens, place + 1) if token.text in ("-", "+") else token


def _type_of(token: _Token) -> str:
    if token.kind == "number":
        is_long = token.text.isdecimal() and len(token.text) > _MOST_DIGITS
        return _LONG_NUMBER if is_long else _NUMBER
    if token.kind == "text":
        return _TEXT
    return _TRUTH if token.word in _TRUTHS else ""
