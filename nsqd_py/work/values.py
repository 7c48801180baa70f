"""Bodies as values, by the annotation of a handler's parameter, and values as bodies.

bytes, str                             the body, or its text in UTF-8
dict, list, int, float, bool, Any      JSON; so is a parameter without an annotation
classes of pydantic and of msgspec     by these libraries
all others: dataclasses, list[Order]   JSON that is checked by msgspec or, without it, by pydantic. Both are strict: neither
                                       makes a number of a text

The libraries are imported where an annotation needs them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, is_dataclass
from enum import Enum
from functools import cache, partial
from importlib import import_module
from typing import Any, TypeAlias, get_origin

Decoder: TypeAlias = Callable[[bytes], Any]
"""Makes the value of a body. Raises any Exception if it cannot."""

_PLAIN = (dict, list, int, float, bool)
_SHOWN = 100
_TRACES = (
    b"null",
    b"NaN",
    b"Infinity",
)  # what a NaN or an infinity becomes: null in orjson, and pydantic, the others in json


class BadAnnotation(TypeError):
    """No value can be made for this annotation; str(error) has a remedy."""


# ---- bodies as values


def decoder_of(annotation: Any) -> Decoder:
    """Return what makes values of this annotation. Raises BadAnnotation."""
    if annotation is bytes:
        return _as_is
    if annotation is str:
        return _text
    if annotation is Any:
        return _loads()
    if annotation in _PLAIN:
        return partial(_plain, annotation, _loads())
    if _is_of(annotation, "pydantic", "BaseModel"):
        validate: Decoder = annotation.model_validate_json
        return validate
    if _is_of(annotation, "msgspec", "Struct"):
        return _of_msgspec(annotation)
    library = _library()
    if not library:
        raise BadAnnotation(
            f"{annotation!r} needs msgspec or pydantic: install one of them, or annotate it with dict"
        )
    if library == "msgspec":
        return _of_msgspec(annotation)
    return _of_pydantic(annotation)


def _as_is(body: bytes) -> bytes:
    return body


def _text(body: bytes) -> str:
    return body.decode()


def _plain(kind: type, loads: Decoder, body: bytes) -> Any:
    value = loads(body)
    if type(value) is kind:
        return value
    if kind is float and type(value) is int:
        return float(value)
    raise ValueError(f"expected {kind.__name__}, got {value!r:.{_SHOWN}}")


def _of_msgspec(annotation: Any) -> Decoder:
    msgspec: Any = import_module("msgspec")
    try:
        decode: Decoder = msgspec.json.Decoder(annotation).decode
    except TypeError as error:
        raise BadAnnotation(f"msgspec makes no value of {annotation!r}: {error}") from None
    return decode


def _of_pydantic(annotation: Any) -> Decoder:
    pydantic: Any = import_module("pydantic")
    try:
        validate = pydantic.TypeAdapter(annotation).validate_json
    except pydantic.errors.PydanticUserError as error:
        raise BadAnnotation(f"pydantic makes no value of {annotation!r}: {error}") from None
    return partial(validate, strict=True)


def _library() -> str:
    """Return the library that checks types, or "" if none is installed."""
    for name in ("msgspec", "pydantic"):
        try:
            import_module(name)
        except ImportError:
            continue
        return name
    return ""


def _is_of(value: Any, module: str, name: str) -> bool:
    """True for a class that is derived from this one of a library, without importing the library."""
    kind = get_origin(value) or value
    if not isinstance(kind, type):
        return False
    same_name = [each for each in kind.__mro__ if each.__name__ == name]
    return any(each.__module__.partition(".")[0] == module for each in same_name)


def _loads() -> Decoder:
    try:
        loads: Decoder = import_module("orjson").loads
    except ImportError:
        return json.loads
    return loads


# ---- values as bodies


def encode(value: Any) -> bytes:
    """Return the body of a value: bytes as they are, a str in UTF-8, all else as JSON.

    Raises TypeError, and ValueError for a NaN or an infinity, which JSON has not.
    """
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    try:
        body = _dumps()(value)
    except TypeError as error:
        raise TypeError(
            f"{type(value).__name__} cannot be published ({error}): give bytes, a str, or what JSON has: a dict, a list, a "
            f"number, a dataclass, or an object of a class of pydantic or msgspec: {value!r:.{_SHOWN}}"
        ) from error
    if any(trace in body for trace in _TRACES):
        _refuse_not_finite(value)
    return body


def _refuse_not_finite(value: Any) -> None:
    """Raise ValueError if a number in this value, which can be published otherwise, is not finite."""
    try:
        json.dumps(value, default=_jsonable_or_none, allow_nan=False)
    except ValueError as error:
        raise ValueError(
            f"{type(value).__name__} cannot be published as JSON, which has no NaN and no infinity ({error}): "
            f"publish None or a str instead: {value!r:.{_SHOWN}}"
        ) from None


@cache
def _dumps() -> Callable[[Any], bytes]:
    try:
        orjson: Any = import_module("orjson")
    except ImportError:
        return _dumps_without_orjson
    return partial(orjson.dumps, default=_jsonable)


def _dumps_without_orjson(value: Any) -> bytes:
    return json.dumps(value, default=_jsonable, separators=(",", ":")).encode()


def _jsonable(value: Any) -> Any:
    """Return what JSON takes instead of this value. Raises TypeError."""
    if _is_of(type(value), "pydantic", "BaseModel"):
        return value.model_dump(mode="json")
    if _is_of(type(value), "msgspec", "Struct"):
        return import_module("msgspec").to_builtins(value)
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if hasattr(value, "isoformat"):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} cannot be published as JSON: {value!r:.{_SHOWN}}")


def _jsonable_or_none(value: Any) -> Any:
    """Do as `_jsonable`, with None for what holds no numbers: orjson knows more classes."""
    if isinstance(value, Enum):
        return value.value
    try:
        return _jsonable(value)
    except TypeError:
        return None
