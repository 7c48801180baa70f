"""The language of JSON paths in the message browser."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nsqadmin_py.messages.json_path import BadFilter, parse_json_path

ORDER: dict[str, Any] = {
    "id": 42,
    "paid": True,
    "note": None,
    "first name": "Ada",
    "customer": {"country": "de", "tags": ["new", "vip"]},
    "items": [{"sku": "A1", "price": 9.5}, {"sku": "B2", "price": 20}],
}


@pytest.mark.parametrize(
    "path",
    [
        "$",
        "$.id",
        "id",
        "$.note",
        "$.customer.country",
        "customer.tags[1]",
        '$["first name"]',
        "$.items[*].sku",
        "$.id = 42",
        "id==42",
        "$.id != 41",
        "$.id < 43",
        "$.id >= 42",
        "$.paid = true",
        "$.note = null",
        '$.customer.country = "de"',
        "$.customer.country = de",
        "$.customer.country ~ e",
        "$.items[*].price > 15",
        "$.items[1].sku = B2",
        "$.items[-1].sku = B2",
        "$.customer.* = de",
        '$["first name"] ~ "da"',
        "$.items[0].price = 9.5",
        '$.customer.country >= "aa"',
    ],
)
def test_paths_that_fit(path: str) -> None:
    assert parse_json_path(path).matches(ORDER)


@pytest.mark.parametrize(
    "path",
    [
        "$.nothing",
        "$.items[2]",
        "$.id[0]",
        "$.id.x",
        "$.id = 43",
        '$.id = "42"',
        "$.paid = 1",
        "$.nothing != 1",
        "$.customer.country < 5",
        "$.id > de",
        "$.items[*].price > 20",
        "$.note ~ n",
        "$.paid < 2",
        "$.tags[*]",
        "$.items = A1",
    ],
)
def test_paths_that_do_not(path: str) -> None:
    assert not parse_json_path(path).matches(ORDER)


@pytest.mark.parametrize(
    "path", ["", "= 4", "$.a =", "$.a b", "$.a[", "$.a[x]", '$["a', '$["\\x"]', "$a", "a" * 1001, "$..a"]
)
def test_what_is_no_path(path: str) -> None:
    with pytest.raises(BadFilter):
        parse_json_path(path)


def test_many_wildcards_visit_each_value_once_a_step() -> None:
    document = json.loads("[" * 50 + "1" + "]" * 50)
    assert parse_json_path("$" + "[*]" * 50 + " = 1").matches(document)
    assert not parse_json_path("$" + "[*]" * 300).matches([[[]] * 1000] * 1000)
