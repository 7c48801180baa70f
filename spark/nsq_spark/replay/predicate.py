"""The parser of predicates: as much of the grammar of Spark SQL as `json_types` and `filter` need. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from typing import NamedTuple

from nsq_spark.replay.errors import BadPredicate
from nsq_spark.schema import COLUMNS

JSON = "json"

_TOKEN = re.compile(
    r"""(?P<space>\s+|--[^\n]*|/\*.*?\*/)
    |(?P<text>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
    |(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[A-Za-z]*)
    |(?P<path>(?i:json)(?:\s*\.\s*(?:\w+|`[^`]+`)|\s*\[\s*\d+\s*\])+)
    |(?P<word>`[^`]+`|[^\W\d]\w*(?:\s*\.\s*(?:\w+|`[^`]+`))*)
    |(?P<sign><=>|<>|!=|<=|>=|==|\|\||::|.)""",
    re.VERBOSE | re.DOTALL,
)
_STEP = re.compile(r"\.\s*(\w+|`[^`]+`)|\[\s*(\d+)\s*\]")
# What has another value each time: functions, and those that are one without parentheses too.
_CHANGING_CALLS = frozenset(
    (
        "rand",
        "randn",
        "random",
        "randstr",
        "uniform",
        "uuid",
        "shuffle",
        "now",
        "current_timestamp",
        "current_date",
        "current_time",
        "curdate",
        "localtimestamp",
        "monotonically_increasing_id",
        "spark_partition_id",
        "input_file_name",
    )
)
_CHANGING_WORDS = frozenset(("current_timestamp", "current_date", "current_time", "localtimestamp"))
_SUGGESTION = re.compile(r" Did you mean one of the following\? \[[^\]]*\]\.")

# Operators between two expressions, from the loosest to the tightest. NOT, IN, BETWEEN, IS and LIKE come after AND.
_LEVELS = (
    ("or", ("OR",)),
    ("and", ("AND", "&&")),
    ("compare", ("=", "==", "<=>", "!=", "<>", "<", "<=", ">", ">=")),
    ("calculate", ("|",)),
    ("calculate", ("^",)),
    ("calculate", ("&",)),
    ("calculate", ("+", "-", "||")),
    ("calculate", ("*", "/", "%", "DIV")),
)
_AFTER_AND, _AFTER_COMPARISON = 2, 3
_LIKES = frozenset(("LIKE", "ILIKE", "RLIKE", "REGEXP"))
_DATES = frozenset(("DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "TIMESTAMP_LTZ", "X"))


class Token(NamedTuple):
    kind: str
    text: str

    @property
    def word(self) -> str:
        return self.text.upper()


class Node(NamedTuple):
    """An expression, which reaches from token `start` to `end` (not included).

    kind  what it is; `name` says which: the sign, NOT, the function, the type of a cast, or the text of a token
    """

    kind: str
    name: str
    parts: tuple[Node, ...]
    start: int
    end: int


def tokens_of(predicate: str) -> Iterator[Token]:
    """Yield all tokens, without spaces and comments."""
    for match in _TOKEN.finditer(predicate):
        assert match.lastgroup is not None
        if match.lastgroup != "space":
            yield Token(match.lastgroup, match.group())


def steps_of(field: str) -> list[str | int]:
    """Return the names and indexes in `json.name[0]`."""
    return [int(index) if index else name.strip("`") for name, index in _STEP.findall(field)]


def names_in(predicate: str) -> set[str]:
    """Return all words, in lower case: columns are among them."""
    return {token.text.strip("`").lower() for token in tokens_of(predicate) if token.kind == "word"}


def check_is_steady(predicate: str) -> None:
    """Raise BadPredicate for a predicate that a retry, or a resumed replay, would decide in another way."""
    tokens = [*tokens_of(predicate), Token("", "")]
    for token, following in zip(tokens, tokens[1:], strict=False):
        is_call = following.text == "("
        if token.kind == "word" and token.text.lower() in (_CHANGING_CALLS if is_call else _CHANGING_WORDS):
            raise BadPredicate(
                f"{token.text}{'()' if is_call else ''} has another value each time: a replay that goes on would "
                "choose other messages; use --sample to take some of them, --start and --end for times"
            )


def reason(spark_says: str) -> str:
    """Return why Spark cannot use a predicate, in one line, with our columns where Spark suggests some."""
    line = spark_says.strip().partition("\n")[0]
    return _SUGGESTION.sub(f" There are {', '.join(column.name for column in COLUMNS)}, and json.field.", line)


@lru_cache(maxsize=16)
def parsed(predicate: str) -> Node:
    """Return the tree of a predicate. Raises BadPredicate."""
    return _Parser(predicate).whole()


class _Parser:
    """Reads a predicate by the grammar of Spark SQL, from the loosest operators to the tightest."""

    def __init__(self, predicate: str) -> None:
        self._predicate = predicate
        self._tokens = list(tokens_of(predicate))
        self._place = 0

    def whole(self) -> Node:
        found = self._expression()
        if self._place < len(self._tokens):
            raise self._unclear()
        return found

    def _node(self, start: int, kind: str, name: str = "", parts: Sequence[Node] = ()) -> Node:
        """Return a node that ends at the place that is reached."""
        return Node(kind, name, tuple(parts), start, self._place)

    def _next(self, ahead: int = 0) -> Token:
        place = self._place + ahead
        return self._tokens[place] if place < len(self._tokens) else Token("", "")

    def _take(self, *words: str) -> str:
        """Pass over the next token if it is one of these, and return it."""
        token = self._next()
        if token.kind not in ("word", "sign") or token.word not in words:
            return ""
        self._place += 1
        return token.word

    def _need(self, word: str) -> None:
        if not self._take(word):
            raise self._unclear()

    def _unclear(self) -> BadPredicate:
        near = self._next().text or "its end"
        return BadPredicate(
            f"the predicate {self._predicate!r} cannot be used: no types of JSON fields can be found near {near}; "
            "mend it, or say the types with --json-schema, such as 'user STRUCT<id: BIGINT>, level STRING'"
        )

    def _expression(self, level: int = 0) -> Node:
        """Return an expression with operators of this level, or tighter ones."""
        if level == len(_LEVELS):
            return self._unary()
        kind, signs = _LEVELS[level]
        tighter = self._not if level + 1 == _AFTER_AND else partial(self._expression, level + 1)
        start, left = self._place, tighter()
        while sign := self._take(*signs):
            is_flat = kind in ("and", "or") and left.kind == kind  # so that a long predicate is not a deep tree
            parts = [*left.parts, tighter()] if is_flat else [left, tighter()]
            left = self._node(start, kind, sign, parts)
        return left

    def _not(self) -> Node:
        start = self._place
        if self._take("NOT", "!"):
            return self._node(start, "not", "", [self._not()])
        found = self._expression(_AFTER_AND)
        while True:
            is_negated = self._next().word == "NOT"
            word = self._next(1 if is_negated else 0).word
            if self._next().kind != "word" or word not in {"IN", "BETWEEN", "IS", *_LIKES}:
                return found
            self._place += 2 if is_negated else 1
            found = self._tested(start, found, word, is_negated=is_negated)

    def _tested(self, start: int, left: Node, word: str, *, is_negated: bool) -> Node:
        negation = "NOT " if is_negated else ""
        if word == "IN":
            self._need("(")
            return self._node(start, "in", negation, [left, *self._list()])
        if word == "BETWEEN":
            low = self._expression(_AFTER_COMPARISON)
            self._need("AND")
            return self._node(start, "between", negation, [left, low, self._expression(_AFTER_COMPARISON)])
        if word != "IS":
            return self._node(start, "like", word, [left, *self._patterns()])
        negation = self._take("NOT")
        if self._take("DISTINCT"):
            self._need("FROM")
            return self._node(start, "distinct", negation, [left, self._expression(_AFTER_COMPARISON)])
        self._place += 1
        return self._node(start, "is", negation + self._next(-1).word, [left])

    def _patterns(self) -> list[Node]:
        if self._take("ANY", "SOME", "ALL"):
            self._need("(")
            return self._list()
        found = [self._expression(_AFTER_COMPARISON)]
        self._place += 2 if self._next().word == "ESCAPE" else 0
        return found

    def _unary(self) -> Node:
        start = self._place
        if sign := self._take("-", "+", "~"):
            return self._node(start, "calculate", sign, [self._unary()])
        found = self._primary()
        while True:
            if self._take("::"):
                found = self._node(start, "cast", self._type(), [found])
            elif self._take("["):
                found = self._node(start, "item", "", [found, self._expression()])
                self._need("]")
            elif self._next().text == ".":
                raise self._unclear()
            else:
                return found

    def _primary(self) -> Node:
        start, token = self._place, self._next()
        self._place += 1
        if token.kind == "text":
            while self._next().kind == "text":  # they are joined
                self._place += 1
        if token.kind in ("path", "number", "text"):
            return self._node(start, token.kind, token.text)
        if token.text == "(":
            inner = self._expression()
            self._need(")")
            return inner
        if token.kind == "word":
            return self._word(start, token)
        self._place = start
        raise self._unclear()

    def _word(self, start: int, token: Token) -> Node:
        word = token.word
        if word in ("CAST", "TRY_CAST") and self._take("("):
            inner = self._expression()
            self._need("AS")
            kind = self._type()
            self._need(")")
            return self._node(start, "cast", kind, [inner])
        if self._take("("):
            return self._node(start, "call", token.text.lower(), self._list())
        if word == "CASE":
            return self._case(start)
        if word == "INTERVAL":
            self._take("-")
            while self._next().kind in ("text", "number") or (
                self._next().kind == "word" and self._next(-1).kind in ("text", "number")
            ):
                self._place += 1
            return self._node(start, "time")
        if word in _DATES and self._next().kind == "text":
            self._place += 1
            return self._node(start, "time")
        kind = {"TRUE": "truth", "FALSE": "truth", "NULL": "null"}.get(word, "column")
        return self._node(start, kind, token.text.strip("`").lower())

    def _list(self) -> list[Node]:
        """Return what follows an opening parenthesis, with commas between, and pass over the closing one."""
        found: list[Node] = []
        while not self._take(")"):
            if found:
                self._need(",")
            found.append(self._expression())
        return found

    def _case(self, start: int) -> Node:
        """Return a node of two: the operand, if there is one, with all conditions; and the results."""
        compared = [] if self._next().word == "WHEN" else [self._expression()]
        name = "of a value" if compared else ""
        results: list[Node] = []
        while self._take("WHEN"):
            compared.append(self._expression())
            self._need("THEN")
            results.append(self._expression())
        if self._take("ELSE"):
            results.append(self._expression())
        self._need("END")
        if not results:
            raise self._unclear()
        return self._node(start, "case", name, [self._node(start, "", "", some) for some in (compared, results)])

    def _type(self) -> str:
        self._place += 1
        name = self._next(-1).word
        if self._take("("):
            self._list()
        return name
