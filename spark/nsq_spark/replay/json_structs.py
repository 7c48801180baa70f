"""Columns of structs that Spark parses of bodies, with the fields that a predicate reads and their types. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from nsq_spark.replay.errors import BadPredicate
from nsq_spark.replay.predicate import JSON

NUMBER, TEXT = "DOUBLE", "STRING"

STEP = re.compile(r"\.\s*(\w+|`[^`]+`)|\[\s*(\d+)\s*\]")
Path: TypeAlias = tuple[str | None, ...]  # names of fields; None is any item of an array


@dataclass(slots=True)
class Structs:
    """As few structs as there can be: a field has one type in each. `leaves`: by name of the column."""

    leaves: dict[str, dict[Path, str]] = field(default_factory=dict)

    def reference(self, text: str, kind: str) -> str:
        """What stands for a path that is read as this type."""
        steps = [(name.strip("`"), index) for name, index in STEP.findall(text)]
        if steps[0][1]:
            raise BadPredicate(f"{text}: a body that is an array has no fields; use from_json(body, ...)")
        path: Path = tuple(None if index else name for name, index in steps)
        number = 1
        while True:
            column = JSON if number == 1 else f"{JSON}_{number}"
            leaves = self.leaves.setdefault(column, {})
            if not any(_clash(path, kind, *leaf) for leaf in leaves.items()):
                leaves[path] = kind
                return column + "".join(f"[{index}]" if index else f".`{name}`" for name, index in steps)
            number += 1


def _clash(path: Path, kind: str, other: Path, other_kind: str) -> bool:
    for one, two in zip(path, other, strict=False):
        if one != two:
            return one is None or two is None  # an object and an array
    return len(path) != len(other) or kind != other_kind


def ddl_of(leaves: Mapping[Path, str]) -> str:
    if () in leaves:
        return leaves[()]
    parts = {
        head: ddl_of({path[1:]: kind for path, kind in leaves.items() if path[0] == head})
        for head in dict.fromkeys(path[0] for path in leaves)
    }
    if None in parts:
        return f"ARRAY<{parts[None]}>"
    return f"STRUCT<{', '.join(f'`{name}`: {ddl}' for name, ddl in parts.items())}>"


Render: TypeAlias = Callable[[Structs], str]


# ---- fields beside fields


def dynamic(sign: str, one: Render, other: Render) -> Render:
    def text(structs: Structs) -> str:
        fields = one(structs), other(structs)
        first, second = (structs.reference(name, NUMBER) for name in fields)
        texts = [structs.reference(name, TEXT) for name in fields]
        otherwise = " ELSE false" if sign == "<=>" else ""
        return (
            f"(CASE WHEN {first} IS NOT NULL AND {second} IS NOT NULL THEN {first} {sign} {second} "
            f"WHEN {first} IS NULL AND {second} IS NULL THEN {texts[0]} {sign} {texts[1]}{otherwise} END)"
        )

    return text


def between(texts: list[Render], negation: str) -> Render:
    low, high = dynamic(">=", texts[0], texts[1]), dynamic("<=", texts[0], texts[2])
    return lambda structs: f"({negation}({low(structs)} AND {high(structs)}))"


def among(texts: list[Render], negation: str) -> Render:
    each = [dynamic("=", texts[0], text) for text in texts[1:]]
    return lambda structs: f"({negation}({' OR '.join(one(structs) for one in each)}))"
