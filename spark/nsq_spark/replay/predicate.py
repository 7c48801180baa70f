"""What a predicate in SQL is made of, and what Spark says of one that it cannot use. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
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
# What has another value each time: functions, and those that are one without parentheses too.
_CHANGING_CALLS = frozenset(
    ("rand", "randn", "random", "randstr", "uniform", "uuid", "shuffle", "now", "current_timestamp", "current_date",
     "current_time", "curdate", "localtimestamp", "monotonically_increasing_id", "spark_partition_id",
     "input_file_name")
)  # fmt: skip
_CHANGING_WORDS = frozenset(("current_timestamp", "current_date", "current_time", "localtimestamp"))
_SUGGESTION = re.compile(r" Did you mean one of the following\? \[[^\]]*\]\.")


class Token(NamedTuple):
    kind: str
    text: str

    @property
    def word(self) -> str:
        return self.text.upper()


def tokens_of(predicate: str) -> Iterator[Token]:
    for match in _TOKEN.finditer(predicate):
        assert match.lastgroup is not None
        yield Token(match.lastgroup, match.group())


def names_in(predicate: str) -> set[str]:
    """Every word in it, in lower case: columns are among them."""
    return {token.text.strip("`").lower() for token in tokens_of(predicate) if token.kind == "word"}


def check_is_steady(predicate: str) -> None:
    """Raises BadPredicate for one that another try, or a replay that goes on, would decide in another way."""
    tokens = [token for token in tokens_of(predicate) if token.kind != "space"]
    for place, token in enumerate(tokens):
        word = token.text.lower()
        is_call = place + 1 < len(tokens) and tokens[place + 1].text == "("
        if token.kind == "word" and word in (_CHANGING_CALLS if is_call else _CHANGING_WORDS):
            raise BadPredicate(
                f"{token.text}{'()' if is_call else ''} has another value each time: a replay that goes on would "
                "choose other messages; use --sample to take some of them, --start and --end for times"
            )


def reason(spark_says: str) -> str:
    """Why a predicate cannot be used, in a line, with our columns where Spark suggests some."""
    line = spark_says.strip().partition("\n")[0]
    return _SUGGESTION.sub(f" There are {', '.join(column.name for column in COLUMNS)}, and json.field.", line)
