"""Bodies as values by an annotation, and values as bodies."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any
from uuid import UUID

import msgspec
import pydantic
import pytest
from typing_extensions import TypedDict  # pydantic takes that of `typing` from Python 3.12 on

from nsqd_py.work import values
from nsqd_py.work.values import BadAnnotation, decoder_of, encode


@dataclass
class Order:
    id: int
    paid: bool = False


class Row(TypedDict):
    id: int


class Model(pydantic.BaseModel):
    id: int
    at: datetime | None = None


class Struct(msgspec.Struct):
    id: int


@pytest.mark.parametrize(
    ("annotation", "body", "value"),
    [
        (bytes, b"\xff\x00", b"\xff\x00"),
        (str, "höh".encode(), "höh"),
        (Any, b"[1, null]", [1, None]),
        (dict, b'{"id": 1}', {"id": 1}),
        (list, b"[1]", [1]),
        (int, b"1", 1),
        (float, b"1", 1.0),
        (bool, b"true", True),
        (dict[str, int], b'{"id": 1}', {"id": 1}),
        (list[Order], b'[{"id": 1}]', [Order(1)]),
        (Order, b'{"id": 1, "paid": true, "more": 2}', Order(1, True)),
        (Row, b'{"id": 1}', {"id": 1}),
        (Order | None, b"null", None),
        (Model, b'{"id": 1, "at": null}', Model(id=1)),
        (Struct, b'{"id": 1}', Struct(1)),
    ],
)
@pytest.mark.parametrize("library", ["msgspec", "pydantic"])
def test_a_body_is_the_value_of_its_annotation(monkeypatch, library, annotation, body, value) -> None:
    monkeypatch.setattr(values, "_library", lambda: library)
    found = decoder_of(annotation)(body)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("annotation", "body"),
    [
        (str, b"\xff"),
        (dict, b"[]"),
        (dict, b"{"),
        (int, b"true"),
        (int, b"1.5"),
        (Order, b'{"id": "1"}'),
        (Order, b"{}"),
        (Model, b'{"id": "x"}'),
        (Struct, b'{"id": "x"}'),
        (list[int], b'["1"]'),
    ],
)
@pytest.mark.parametrize("library", ["msgspec", "pydantic"])
def test_another_body_is_refused(monkeypatch, library, annotation, body) -> None:
    monkeypatch.setattr(values, "_library", lambda: library)
    with pytest.raises(Exception):  # noqa: B017 - of any library
        decoder_of(annotation)(body)


def test_without_a_library_an_annotation_has_a_remedy(monkeypatch) -> None:
    monkeypatch.setattr(values, "_library", lambda: "")
    assert decoder_of(dict)(b"{}") == {}
    with pytest.raises(BadAnnotation, match="install one of them, or annotate it with dict"):
        decoder_of(Order)


def test_an_annotation_of_which_no_value_is_made_is_refused() -> None:
    class Opaque:
        def __init__(self, one: int) -> None:
            self.one = one

    with pytest.raises(BadAnnotation, match="makes no value of"):
        decoder_of(set[Opaque] | set[int])


@pytest.mark.parametrize(
    ("value", "body"),
    [
        (b"\xff", b"\xff"),
        ("höh", "höh".encode()),
        ({"id": 1}, b'{"id":1}'),
        (Order(1), b'{"id":1,"paid":false}'),
        (Model(id=1, at=datetime(2030, 1, 1, tzinfo=UTC)), b'{"id":1,"at":"2030-01-01T00:00:00Z"}'),
        (Struct(1), b'{"id":1}'),
        ([Order(1), Struct(2)], b'[{"id":1,"paid":false},{"id":2}]'),
        (None, b"null"),
    ],
)
def test_a_value_is_its_body(value, body) -> None:
    assert encode(value) == body


def test_what_json_cannot_say_is_refused() -> None:
    with pytest.raises(
        TypeError, match=r"^dict cannot be published .*object\): give bytes, a str, or what JSON has"
    ):
        encode({"one": object()})


@dataclass
class Price:
    amount: float


class Reading(pydantic.BaseModel):
    amount: float


class Rate(msgspec.Struct):
    amount: float


class Level(Enum):
    HIGH = "high"


@pytest.mark.parametrize("has_orjson", [True, False], ids=["orjson", "json"])
@pytest.mark.parametrize(
    "value",
    [
        math.nan,
        {"a": [None, math.inf]},
        (1, -math.inf),
        Price(math.nan),
        [Reading(amount=math.nan)],
        Rate(math.inf),
    ],
    ids=["number", "in a list", "tuple", "dataclass", "pydantic", "msgspec"],
)
def test_a_number_that_json_has_not_is_refused(value, has_orjson, monkeypatch) -> None:
    if not has_orjson:
        monkeypatch.setattr(values, "_dumps", lambda: values._dumps_without_orjson)
    with pytest.raises(ValueError, match="has no NaN and no infinity .*publish None or a str instead: "):
        encode(value)


def test_none_beside_what_only_orjson_knows_is_published() -> None:
    found = encode({"none": None, "id": UUID(int=1), "level": Level.HIGH, "text": "null"})
    assert found == b'{"none":null,"id":"00000000-0000-0000-0000-000000000001","level":"high","text":"null"}'
