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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from nsq_spark.replay.errors import BadPredicate
from nsq_spark.replay.predicate import JSON, Node, parsed, steps_of, tokens_of
from nsq_spark.schema import COLUMNS

_NUMBER, _TEXT, _LONG, _WHOLE, _TRUTH = "DOUBLE", "STRING", "DECIMAL(38, 9)", "BIGINT", "BOOLEAN"
# A field that nothing has given a type yet; neither number, text nor truth value; the result of an unknown function.
_FREE, _OTHER, _UNKNOWN = "", "other", "unknown"
# The type of values of several types.
_STRONGEST = (_OTHER, _TEXT, _LONG, _WHOLE, _NUMBER, _TRUTH, _UNKNOWN)

_NAMED_TYPES = {
    **dict.fromkeys(("TINYINT", "SMALLINT", "INT", "INTEGER", "FLOAT", "REAL", "DOUBLE"), _NUMBER),
    **dict.fromkeys(("BIGINT", "LONG", "DEC", "DECIMAL", "NUMERIC"), _LONG),
    "STRING": _TEXT,
    "BOOLEAN": _TRUTH,
}
_COLUMN_TYPES = {column.name: {"STRING": _TEXT, "INT": _NUMBER, "BIGINT": _LONG}.get(column.ddl, _OTHER) for column in COLUMNS}
# The types of the arguments of functions, and of their results.
_FUNCTIONS: dict[str, tuple[str, str]] = {
    name: types
    for names, types in {
        "abs acos asin atan atan2 bround cbrt ceil ceiling cos degrees exp expm1 floor hypot ln log log10 log1p log2 "
        "mod negative pmod positive pow power radians rint round sign signum sin sqrt tan try_add try_divide try_mod "
        "try_multiply try_subtract": (_NUMBER, _NUMBER),
        "bit_count bit_get getbit shiftleft shiftright": (_WHOLE, _NUMBER),
        "isnan": (_NUMBER, _TRUTH),
        "ascii bit_length char_length character_length crc32 find_in_set instr len length levenshtein locate octet_length": (
            _TEXT,
            _NUMBER,
        ),
        "base64 btrim concat concat_ws date_format get_json_object hex initcap lcase left lower lpad ltrim md5 "
        "regexp_extract regexp_replace regexp_substr repeat replace reverse right rpad rtrim sha sha1 sha2 split_part "
        "string substr substring substring_index translate trim ucase upper": (_TEXT, _TEXT),
        "contains endswith isnotnull isnull like regexp regexp_like rlike startswith": (_TEXT, _TRUTH),
    }.items()
    for name in names.split()
}
_OF_ONE_TYPE = frozenset(("coalesce", "greatest", "ifnull", "least", "nullif", "nvl"))
_SIGN_TYPES = {**dict.fromkeys("|^&~", _WHOLE), "||": _TEXT}
# A double holds no more digits than this; ids that are longer are compared as decimals.
_LONG_NUMBER = re.compile(r"\d{16,}L?", re.IGNORECASE)

Path: TypeAlias = tuple[str | int, ...]  # names of fields; 0 is any item of an array


@dataclass(slots=True)
class Typed:
    """A predicate over columns that Spark parses of the body: `columns` are their names and their schemas (DDL)."""

    where: str
    columns: dict[str, str]


def typed(predicate: str) -> Typed:
    """Return the predicate with a type for each field. Raises BadPredicate."""
    tokens = list(tokens_of(predicate))
    if not any(token.kind == "path" for token in tokens):
        return Typed(predicate, {})
    typing = _Typing(predicate)
    structs = _Structs()
    texts = {start: (start + 1, structs.reference(tokens[start].text, kind)) for start, kind in typing.types.items()}
    for node in typing.open:
        texts[node.start] = node.end, structs.comparison(node)
    pieces: list[str] = []
    place = 0
    while place < len(tokens):
        place, text = texts.get(place, (place + 1, tokens[place].text))
        pieces.append(text)
    return Typed(" ".join(pieces), {name: _ddl_of(leaves) for name, leaves in structs.leaves.items()})


# ---- types of places


class _Value(NamedTuple):
    """The type of an expression. `fields` are the fields in it without a type yet, which all get the same."""

    type: str
    fields: tuple[Node, ...] = ()


class _Typing:
    """Finds the types of the fields of a predicate.

    types  by the place of a field
    open   comparisons of fields with fields, whose types differ from body to body
    """

    def __init__(self, predicate: str) -> None:
        """Raises BadPredicate."""
        self._predicate = predicate
        self.types: dict[int, str] = {}
        self.open: list[Node] = []
        self._as(_TRUTH, self._value(parsed(predicate)))

    def _value(self, node: Node) -> _Value:
        if node.kind == "case":
            return self._case(node)
        values = [self._value(part) for part in node.parts]
        match node.kind:
            case "path":
                return _Value(_FREE, (node,))
            case "number":
                return _Value(_LONG if _LONG_NUMBER.fullmatch(node.name) else _NUMBER)
            case "column":
                return _Value(_COLUMN_TYPES.get(node.name, _UNKNOWN))
            case "text" | "null" | "truth" | "time":
                return _Value({"text": _TEXT, "null": _FREE, "truth": _TRUTH}.get(node.kind, _OTHER))
            case "and" | "or" | "not":
                self._as(_TRUTH, *values)
            case "compare" | "between" | "in":
                self._compare(node, values)
            case "distinct":
                self._compare(None, values)
            case "like":
                self._as(_TEXT, *values)
            case "is":
                self._as(_TRUTH if node.name.endswith(("TRUE", "FALSE", "UNKNOWN")) else _TEXT, *values)
            case "calculate":
                return self._calculated(_SIGN_TYPES.get(node.name, _NUMBER), values)
            case "cast":
                self._as(_TEXT, *values)
                return _Value(_NAMED_TYPES.get(node.name, _OTHER))
            case "item":
                self._as(_TEXT, *values)
                return _Value(_UNKNOWN)
            case _:
                return self._called(node.name, values)
        return _Value(_TRUTH)

    def _as(self, kind: str, *values: _Value) -> None:
        self.types.update((field.start, kind) for value in values for field in value.fields)

    def _same(self, values: Sequence[_Value]) -> _Value:
        """Return the value that any of several may be: fields get the type of the others."""
        known = {value.type for value in values} - {_FREE}
        fields = tuple(field for value in values for field in value.fields)
        if not known:
            return _Value(_FREE, fields)
        if fields and known == {_UNKNOWN}:
            raise self._undecided(fields)
        kind = next(one for one in _STRONGEST if one in known)
        self._as(_TEXT if kind in (_OTHER, _UNKNOWN) else kind, _Value("", fields))
        return _Value(kind)

    def _compare(self, node: Node | None, values: Sequence[_Value]) -> None:
        """Give compared values a type. Without a node, they cannot stay open."""
        fields = self._same(values).fields
        if not fields:
            return
        if any(not value.fields for value in values):  # NULL
            self._as(_TEXT, *values)
        elif node is None or any(part.kind != "path" for part in node.parts):
            raise self._undecided(fields)
        else:
            self.open.append(node)

    def _calculated(self, kind: str, values: Sequence[_Value]) -> _Value:
        known = {value.type for value in values}
        result = _OTHER if _OTHER in known else _LONG if _LONG in known and kind == _NUMBER else kind
        self._as(_TEXT if result == _OTHER else result, *values)
        return _Value(result)

    def _called(self, name: str, values: list[_Value]) -> _Value:
        if name in ("if", "iff", "nvl2") and values:
            self._as(_TEXT if name == "nvl2" else _TRUTH, values.pop(0))
            return self._same(values) if values else _Value(_UNKNOWN)
        if name in _OF_ONE_TYPE and values:
            return self._same(values)
        arguments, result = _FUNCTIONS.get(name, (_TEXT, _UNKNOWN))
        if arguments == _NUMBER and any(value.type == _LONG for value in values):
            arguments = _LONG
        self._as(arguments, *values)
        return _Value(result)

    def _case(self, node: Node) -> _Value:
        conditions, results = ([self._value(part) for part in some.parts] for some in node.parts)
        if node.name:
            self._compare(None, conditions)
        else:
            self._as(_TRUTH, *conditions)
        return self._same(results)

    def _undecided(self, fields: Sequence[Node]) -> BadPredicate:
        names = " and ".join(dict.fromkeys(field.name for field in fields))
        return BadPredicate(
            f"the predicate {self._predicate!r} does not say whether {names} is a number or a text: say it with "
            f"--json-schema, such as '{steps_of(fields[0].name)[0]} DOUBLE'"
        )


# ---- columns of structs


class _Structs:
    """As few structs as possible: a field has one type in each. `leaves`: fields and types, by name of the column."""

    def __init__(self) -> None:
        self.leaves: dict[str, dict[Path, str]] = {}

    def reference(self, field: str, kind: str) -> str:
        """Return the expression for a field that is read as this type. Raises BadPredicate."""
        steps = steps_of(field)
        if isinstance(steps[0], int):
            raise BadPredicate(f"{field}: a body that is an array has no fields; use from_json(body, ...)")
        path: Path = tuple(0 if isinstance(step, int) else step for step in steps)
        number = 1
        while True:
            column = JSON if number == 1 else f"{JSON}_{number}"
            leaves = self.leaves.setdefault(column, {})
            if not any(_clash(path, kind, *leaf) for leaf in leaves.items()):
                leaves[path] = kind
                return column + "".join(f"[{step}]" if isinstance(step, int) else f".`{step}`" for step in steps)
            number += 1

    def comparison(self, node: Node) -> str:
        """Return a comparison of fields with fields, as numbers or as texts."""
        first, *others = (part.name for part in node.parts)
        if node.kind == "compare":
            return self._compared(node.name, first, others[0])
        if node.kind == "between":
            low, high = self._compared(">=", first, others[0]), self._compared("<=", first, others[1])
            return f"({node.name}({low} AND {high}))"
        return f"({node.name}({' OR '.join(self._compared('=', first, other) for other in others)}))"

    def _compared(self, sign: str, *fields: str) -> str:
        one, other = (self.reference(field, _NUMBER) for field in fields)
        text, other_text = (self.reference(field, _TEXT) for field in fields)
        otherwise = " ELSE false" if sign == "<=>" else ""
        return (
            f"(CASE WHEN {one} IS NOT NULL AND {other} IS NOT NULL THEN {one} {sign} {other} "
            f"WHEN {one} IS NULL AND {other} IS NULL THEN {text} {sign} {other_text}{otherwise} END)"
        )


def _clash(path: Path, kind: str, other: Path, other_kind: str) -> bool:
    for one, two in zip(path, other, strict=False):
        if one != two:
            return one == 0 or two == 0  # an object and an array
    return len(path) != len(other) or kind != other_kind


def _ddl_of(leaves: Mapping[Path, str]) -> str:
    if () in leaves:
        return leaves[()]
    parts = {
        head: _ddl_of({path[1:]: kind for path, kind in leaves.items() if path[0] == head})
        for head in dict.fromkeys(path[0] for path in leaves)
    }
    if 0 in parts:
        return f"ARRAY<{parts[0]}>"
    return f"STRUCT<{', '.join(f'`{name}`: {ddl}' for name, ddl in parts.items())}>"
