"""The types of the fields of JSON bodies in a predicate, found by one rule. Pure.

Each place where the predicate names a field has the type that its neighbours ask for:

    number   compared with a number or a numeric column, in arithmetic, in functions of numbers (DOUBLE; DECIMAL(38, 9)
             beside whole numbers of more than 15 digits; BIGINT in bit arithmetic)
    text     compared with a text, in LIKE, CAST and IS NULL, and in all other functions: also the JSON of what is there
    truth    where SQL needs a truth value

Two fields that are compared with each other, and with nothing else, are compared as numbers where both are numbers, as
texts where neither is, and the result is null where one is. A value that does not fit is null, and never an error.
Where the rule does not decide, the predicate is refused: `--json-schema` says the types then.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from nsq_spark.replay.errors import BadPredicate
from nsq_spark.replay.json_structs import NUMBER, STEP, TEXT, Render, Structs, among, between, ddl_of, dynamic
from nsq_spark.replay.predicate import Token, tokens_of
from nsq_spark.replay.sql_types import (
    COLUMN_TYPES,
    FREE,
    FUNCTIONS,
    LONG,
    LONG_TYPES,
    NUMERIC_TYPES,
    OF_ONE_TYPE,
    OTHER,
    TRUTH,
    UNKNOWN,
    WHOLE,
)

# A double holds no more digits than this; ids that are longer are compared as decimals.
_MOST_DIGITS = 15

_COMPARISONS = frozenset(("=", "==", "<=>", "!=", "<>", "<", "<=", ">", ">="))
# From the loosest to the tightest, and the type of their operands.
_LEVELS: tuple[tuple[frozenset[str], str], ...] = (
    (frozenset("|"), WHOLE),
    (frozenset("^"), WHOLE),
    (frozenset("&"), WHOLE),
    (frozenset(("+", "-", "||")), NUMBER),
    (frozenset(("*", "/", "%", "DIV")), NUMBER),
)
_LIKES = frozenset(("LIKE", "ILIKE", "RLIKE", "REGEXP"))
_DATES = frozenset(("DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "TIMESTAMP_LTZ", "X"))


@dataclass(slots=True)
class Typed:
    """A predicate over columns that Spark parses of the body: `columns` are their names and their schemas (DDL)."""

    where: str
    columns: dict[str, str]


def typed(predicate: str) -> Typed:
    """The predicate with a type for each field. Raises BadPredicate."""
    tokens = [token for token in tokens_of(predicate) if token.kind != "space"]
    if not any(token.kind == "path" for token in tokens):
        return Typed(predicate, {})
    reading = _Reading(tokens, predicate)
    reading.run()
    structs = Structs()
    plain = {place: structs.reference(tokens[place].text, kind) for place, kind in reading.types.items()}
    pieces: list[str] = []
    place = 0
    while place < len(tokens):
        end, text = reading.rewritten.get(place, (place + 1, None))
        pieces.append(plain.get(place, tokens[place].text) if text is None else text(structs))
        place = end
    return Typed(" ".join(pieces), {name: ddl_of(leaves) for name, leaves in structs.leaves.items()})


# ---- types of places


class _Value(NamedTuple):
    """An expression from token `start` to `end` (not included). `fields` are places of fields without a type yet, which
    all get the same; `path` is the place of the field that it is, where it is nothing else.
    """

    type: str
    fields: tuple[int, ...]
    start: int
    end: int
    path: int | None = None


class _Reading:
    """Reads a predicate by the grammar of Spark SQL, as far as types need it.

    types      by place of a field
    rewritten  by place: up to where it reaches, and what stands there
    """

    def __init__(self, tokens: Sequence[Token], predicate: str) -> None:
        self._tokens = tokens
        self._predicate = predicate
        self._place = 0
        self.types: dict[int, str] = {}
        self.rewritten: dict[int, tuple[int, Render | None]] = {}

    def run(self) -> None:
        self._as(TRUTH, self._or())
        if self._place < len(self._tokens):
            raise self._unclear()

    # ---- tokens

    def _next(self, ahead: int = 0) -> Token:
        place = self._place + ahead
        return self._tokens[place] if place < len(self._tokens) else Token("", "")

    def _take(self, *words: str) -> bool:
        """Pass over the next token if it is one of these."""
        token = self._next()
        if token.kind in ("word", "sign") and token.word in words:
            self._place += 1
            return True
        return False

    def _need(self, word: str) -> None:
        if not self._take(word):
            raise self._unclear()

    def _unclear(self) -> BadPredicate:
        near = self._next().text or "its end"
        return BadPredicate(
            f"the predicate {self._predicate!r} cannot be used: no types of JSON fields can be found near {near}; "
            "mend it, or say the types with --json-schema, such as 'user STRUCT<id: BIGINT>, level STRING'"
        )

    def _undecided(self, fields: Sequence[int]) -> BadPredicate:
        names = " and ".join(dict.fromkeys(self._tokens[place].text for place in fields))
        first = STEP.findall(self._tokens[fields[0]].text)[0][0]
        return BadPredicate(
            f"the predicate {self._predicate!r} does not say whether {names} is a number or a text: say it with "
            f"--json-schema, such as '{first} DOUBLE'"
        )

    # ---- types

    def _as(self, kind: str, *values: _Value) -> None:
        for value in values:
            self.types.update(dict.fromkeys(value.fields, kind))

    def _same(self, values: Sequence[_Value]) -> _Value:
        """All are of one type: fields get that of the others."""
        known = {value.type for value in values} - {FREE}
        fields = tuple(place for value in values for place in value.fields)
        span = (values[0].start, self._place)
        if not known:
            return _Value(FREE, fields, *span)
        if fields and known == {UNKNOWN}:
            raise self._undecided(fields)
        kind = next(one for one in (OTHER, TEXT, LONG, WHOLE, NUMBER, TRUTH, UNKNOWN) if one in known)
        self.types.update(dict.fromkeys(fields, TEXT if kind in (OTHER, UNKNOWN) else kind))
        return _Value(kind, (), *span)

    def _compared(self, values: Sequence[_Value], render: Callable[[list[Render]], Render] | None) -> _Value:
        """Values that are compared. `render` makes the text where all are fields of no type, from theirs."""
        found = self._same(values)
        if found.fields:
            paths = [value.path for value in values]
            if any(not value.fields for value in values):  # NULL
                self._as(TEXT, found)
            elif render is None or None in paths:
                raise self._undecided(found.fields)
            else:
                texts = [self._tokens[place].text for place in paths if place is not None]
                self.rewritten[found.start] = (
                    found.end, render([lambda structs, text=text: text for text in texts])  # type: ignore[misc]
                )  # fmt: skip
        return _Value(TRUTH, (), found.start, found.end)

    # ---- the grammar, from the loosest to the tightest

    def _or(self) -> _Value:
        return self._connected(("OR",), lambda: self._connected(("AND", "&&"), self._not))

    def _connected(self, words: tuple[str, ...], part: Callable[[], _Value]) -> _Value:
        first = part()
        if not self._take(*words):
            return first
        parts = [first, part()]
        while self._take(*words):
            parts.append(part())
        self._as(TRUTH, *parts)
        return _Value(TRUTH, (), first.start, self._place)

    def _not(self) -> _Value:
        start = self._place
        if self._take("NOT", "!"):
            self._as(TRUTH, self._not())
            return _Value(TRUTH, (), start, self._place)
        return self._predicated()

    def _predicated(self) -> _Value:
        left = self._comparison()
        while True:
            is_not = self._next().word == "NOT"
            word = self._next(1 if is_not else 0).word
            if self._next().kind != "word" or word not in {"IN", "BETWEEN", "IS", *_LIKES}:
                return left
            self._place += 2 if is_not else 1
            left = self._tested(left, word, "NOT " if is_not else "")

    def _tested(self, left: _Value, word: str, negation: str) -> _Value:
        if word == "IS":
            return self._is(left)
        if word == "BETWEEN":
            low = self._binary(0)
            self._need("AND")
            return self._compared([left, low, self._binary(0)], lambda texts: between(texts, negation))
        if word == "IN":
            self._need("(")
            return self._compared([left, *self._list()], lambda texts: among(texts, negation))
        self._as(TEXT, left, *([] if self._takes_any() else [self._binary(0)]))
        if self._take("ESCAPE"):
            self._place += 1
        return _Value(TRUTH, (), left.start, self._place)

    def _takes_any(self) -> bool:
        """LIKE ANY ('a', 'b')"""
        if not self._take("ANY", "SOME", "ALL"):
            return False
        self._need("(")
        self._as(TEXT, *self._list())
        return True

    def _is(self, left: _Value) -> _Value:
        self._take("NOT")
        if self._take("DISTINCT"):
            self._need("FROM")
            return self._compared([left, self._binary(0)], None)
        self._as(TRUTH if self._next().word in ("TRUE", "FALSE", "UNKNOWN") else TEXT, left)
        self._place += 1
        return _Value(TRUTH, (), left.start, self._place)

    def _comparison(self) -> _Value:
        left = self._binary(0)
        while self._next().text in _COMPARISONS:
            sign = self._next().text
            self._place += 1
            right = self._binary(0)
            left = self._compared([left, right], lambda texts, sign=sign: dynamic(sign, *texts))  # type: ignore[misc]
        return left

    def _binary(self, level: int) -> _Value:
        if level == len(_LEVELS):
            return self._unary()
        words, kind = _LEVELS[level]
        left = self._binary(level + 1)
        while self._next().word in words and self._next().kind in ("sign", "word"):
            is_text = self._next().text == "||"
            self._place += 1
            left = self._calculated([left, self._binary(level + 1)], TEXT if is_text else kind)
        return left

    def _calculated(self, values: Sequence[_Value], kind: str) -> _Value:
        known = {value.type for value in values}
        result = OTHER if OTHER in known else LONG if LONG in known and kind == NUMBER else kind
        self._as(TEXT if result == OTHER else result, *values)
        return _Value(result, (), values[0].start, self._place)

    def _unary(self) -> _Value:
        start = self._place
        if self._next().text in ("-", "+", "~"):
            kind = WHOLE if self._next().text == "~" else NUMBER
            self._place += 1
            inner = self._unary()
            return self._calculated([inner], kind)._replace(start=start)
        return self._postfix()

    def _postfix(self) -> _Value:
        value = self._primary()
        while self._next().text in ("::", "[", "."):
            if self._take("::"):
                self._as(TEXT, value)
                value = _Value(self._type_name(), (), value.start, self._place)
            elif self._take("["):
                self._as(TEXT, value, self._or())
                self._need("]")
                value = _Value(UNKNOWN, (), value.start, self._place)
            else:
                raise self._unclear()
        return value

    def _primary(self) -> _Value:
        start, token = self._place, self._next()
        self._place += 1
        if token.kind == "path":
            return _Value(FREE, (start,), start, self._place, start)
        if token.kind == "number":
            return _Value(_number_type(token.text), (), start, self._place)
        if token.kind == "text":
            while self._next().kind == "text":
                self._place += 1
            return _Value(TEXT, (), start, self._place)
        if token.text == "(":
            inner = self._or()
            self._need(")")
            return inner._replace(start=start, end=self._place)
        if token.kind == "word":
            return self._word(start, token)
        self._place = start
        raise self._unclear()

    def _word(self, start: int, token: Token) -> _Value:
        word = token.word
        if word in ("CAST", "TRY_CAST") and self._take("("):
            self._as(TEXT, self._or())
            self._need("AS")
            kind = self._type_name()
            self._need(")")
            return _Value(kind, (), start, self._place)
        if self._take("("):
            return self._call(start, token.text.lower(), self._list())
        if word == "CASE":
            return self._case(start)
        if word == "INTERVAL":
            self._take("-")
            while self._next().kind in ("text", "number") or (
                self._next().kind == "word" and self._next(-1).kind in ("text", "number")
            ):
                self._place += 1
        elif word in _DATES and self._next().kind == "text":
            self._place += 1
        elif word in ("TRUE", "FALSE", "NULL"):
            return _Value(FREE if word == "NULL" else TRUTH, (), start, self._place)
        else:
            kind = COLUMN_TYPES.get(token.text.strip("`").lower(), UNKNOWN)
            return _Value(kind, (), start, self._place)
        return _Value(OTHER, (), start, self._place)

    def _list(self) -> list[_Value]:
        """Behind an opening parenthesis: what is in it, with commas between, and the closing one."""
        values: list[_Value] = []
        while not self._take(")"):
            if values:
                self._need(",")
            values.append(self._or())
        return values

    def _call(self, start: int, name: str, values: list[_Value]) -> _Value:
        if name in ("if", "iff", "nvl2") and values:
            self._as(TEXT if name == "nvl2" else TRUTH, values[0])
            values = values[1:]
            return self._same(values)._replace(start=start) if values else _Value(UNKNOWN, (), start, self._place)
        if name in OF_ONE_TYPE and values:
            return self._same(values)._replace(start=start)
        arguments, result = FUNCTIONS.get(name, (TEXT, UNKNOWN))
        if arguments == NUMBER and any(value.type == LONG for value in values):
            arguments = LONG
        self._as(arguments, *values)
        return _Value(result, (), start, self._place)

    def _case(self, start: int) -> _Value:
        operand = None if self._next().word == "WHEN" else self._or()
        conditions: list[_Value] = [] if operand is None else [operand]
        results: list[_Value] = []
        while self._take("WHEN"):
            conditions.append(self._or())
            self._need("THEN")
            results.append(self._or())
        if self._take("ELSE"):
            results.append(self._or())
        self._need("END")
        if operand is None:
            self._as(TRUTH, *conditions)
        else:
            self._compared(conditions, None)
        if not results:
            raise self._unclear()
        return self._same(results)._replace(start=start)

    def _type_name(self) -> str:
        word = self._next().word
        self._place += 1
        if self._take("("):
            self._list()
        if word in NUMERIC_TYPES:
            return NUMBER
        return {"STRING": TEXT, "BOOLEAN": TRUTH}.get(word, LONG if word in LONG_TYPES else OTHER)


def _number_type(text: str) -> str:
    digits = re.match(r"\d*", text)
    is_whole = digits is not None and text[digits.end() :].upper() in ("", "L")
    return LONG if is_whole and digits is not None and digits.end() > _MOST_DIGITS else NUMBER
