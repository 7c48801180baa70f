"""The types that a predicate is about, and those that its columns and functions have. Pure."""

from __future__ import annotations

from nsq_spark.replay.json_structs import NUMBER, TEXT
from nsq_spark.schema import COLUMNS

LONG, WHOLE, TRUTH = "DECIMAL(38, 9)", "BIGINT", "BOOLEAN"
# A field that nothing has given a type yet; neither number, text nor truth value; the result of an unknown function.
FREE, OTHER, UNKNOWN = "", "other", "unknown"

NUMERIC_TYPES = frozenset(("TINYINT", "SMALLINT", "INT", "INTEGER", "FLOAT", "REAL", "DOUBLE"))
LONG_TYPES = frozenset(("BIGINT", "LONG", "DEC", "DECIMAL", "NUMERIC"))
COLUMN_TYPES = {
    column.name: {"STRING": TEXT, "INT": NUMBER, "BIGINT": LONG}.get(column.ddl, OTHER) for column in COLUMNS
}

# (what their arguments are, what they give)
FUNCTIONS: dict[str, tuple[str, str]] = {
    name: types
    for names, types in {
        "abs acos asin atan atan2 bround cbrt ceil ceiling cos degrees exp expm1 floor hypot ln log log10 log1p log2 "
        "mod negative pmod positive pow power radians rint round sign signum sin sqrt tan try_add try_divide try_mod "
        "try_multiply try_subtract": (NUMBER, NUMBER),
        "bit_count bit_get getbit shiftleft shiftright": (WHOLE, NUMBER),
        "isnan": (NUMBER, TRUTH),
        "ascii bit_length char_length character_length crc32 find_in_set instr len length levenshtein locate "
        "octet_length": (TEXT, NUMBER),
        "base64 btrim concat concat_ws date_format get_json_object hex initcap lcase left lower lpad ltrim md5 "
        "regexp_extract regexp_replace regexp_substr repeat replace reverse right rpad rtrim sha sha1 sha2 split_part "
        "string substr substring substring_index translate trim ucase upper": (TEXT, TEXT),
        "contains endswith isnotnull isnull like regexp regexp_like rlike startswith": (TEXT, TRUTH),
    }.items()
    for name in names.split()
}
OF_ONE_TYPE = frozenset(("coalesce", "greatest", "ifnull", "least", "nullif", "nvl"))
