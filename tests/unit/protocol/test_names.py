"""Names of topics and channels."""

import pytest

from nsqd_py.protocol.names import MAX_NAME_LENGTH, is_ephemeral, is_valid_name, quote


@pytest.mark.parametrize(
    "name", [b"a", b"A-Z_0.9", b".", b"-", b"x" * 64, b"log#ephemeral", b"x" * 54 + b"#ephemeral"]
)
def test_valid(name: bytes) -> None:
    assert is_valid_name(name)


@pytest.mark.parametrize(
    "name",
    [
        b"",
        b"x" * 65,
        b"x" * 55 + b"#ephemeral",
        b"#ephemeral",
        b"a#ephemeral#ephemeral",
        b"a#ephemera",
        b"a#ephemeralx",
        b"a#",
        b"a b",
        b"a/b",
        b"a:b",
        b"a\n",
        b"a\r",
        b"a\0",
        b"\xff",
        "ä".encode(),
        "\u0661".encode(),  # a digit, but not an ASCII one
    ],
)
def test_not_valid(name: bytes) -> None:
    assert not is_valid_name(name)


def test_every_single_byte() -> None:
    allowed = b".-_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
    valid = bytes(code for code in range(256) if is_valid_name(bytes([code])))
    assert sorted(valid) == sorted(allowed)
    assert MAX_NAME_LENGTH == 64


def test_ephemeral() -> None:
    assert is_ephemeral("log#ephemeral")
    assert not is_ephemeral("log")
    assert not is_ephemeral("log#ephemeral2")


@pytest.mark.parametrize(
    ("name", "quoted"),
    [
        (b"plain", '"plain"'),
        (b"", '""'),
        (b'a"b\\c', r'"a\"b\\c"'),
        (b"\a\b\t\n\v\f\r", r'"\a\b\t\n\v\f\r"'),
        (b"\x00\x1f\x7f", r'"\x00\x1f\x7f"'),
        (b"\xff\xfe", r'"\xff\xfe"'),
        (b"\xed\xa0\x80", r'"\xed\xa0\x80"'),  # a surrogate is no UTF-8
        ("grün €".encode(), '"grün €"'),
        ("\x85\xad".encode(), r'"\u0085\u00ad"'),
        ("\U0001f600".encode(), '"\U0001f600"'),
        ("\U000e0001".encode(), r'"\U000e0001"'),
    ],
)
def test_quote(name: bytes, quoted: str) -> None:
    assert quote(name) == quoted
