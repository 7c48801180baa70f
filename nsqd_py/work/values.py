"""Bodies as values, by the annotation of a handler's parameter, and values as bodies.

bytes, str                       the body, or its text in UTF-8
Any, or no annotation            JSON
classes of pydantic and msgspec  by these libraries
all others                       JSON that is checked by msgspec or pydantic, whichever is installed; without them, the module
                                 itself checks plain types, lists, dictionaries, dataclasses and typed dictionaries

The libraries are imported where an annotation needs them.
"""

from __future__ import annotations

import json
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, asdict, fields, is_dataclass
from functools import cache, partial
from importlib import import_module
from typing import Any, TypeAlias, Union, get_args, get_origin, get_type_hints, is_typeddict

Decoder: TypeAlias = Callable[[bytes], Any]
"""Makes the value of a body. Raises any Exception if it cannot."""

_PLAIN = (bool, int, float, str)
_SHOWN = 100


class BadAnnotation(TypeError):
    """No value can be made for this annotation; str(error) has a remedy."""


# ---- bodies as values


def decoder_of(annotation: Any) -> Decoder:
    """Return what makes values of this annotation. Raises BadAnnotation."""
    if annotation in (bytes, str):
        return _as_is if annotation is bytes else _text
    if annotation in (Any, object):
        return _loads()
    if _is_of(annotation, "pydantic", "BaseModel"):
        made: Decoder = annotation.model_validate_json
        return made
    library = "" if _is_of(annotation, "msgspec", "Struct") else _library()
    if library != "pydantic" and (library or _is_of(annotation, "msgspec", "Struct")):
        return _of_msgspec(annotation)
    if library:
        return _of_pydantic(annotation)
    convert = _converter(annotation)
    loads = _loads()
    return lambda body: convert(loads(body))


def _as_is(body: bytes) -> bytes:
    return body


def _text(body: bytes) -> str:
    return body.decode()


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
    return partial(validate, strict=True)  # as msgspec: a number is not made of a text


@cache
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
    classes = kind.__mro__ if isinstance(kind, type) else ()
    return any(each.__name__ == name and each.__module__.partition(".")[0] == module for each in classes)


@cache
def _loads() -> Decoder:
    try:
        loads: Decoder = import_module("orjson").loads
    except ImportError:
        return json.loads
    return loads


# ---- values without a library


def _converter(annotation: Any) -> Callable[[Any], Any]:
    """Return what checks a value of JSON, and makes the annotated one of it. Raises BadAnnotation."""
    if annotation is Any or annotation is object:
        return lambda value: value
    if annotation is None or annotation in (*_PLAIN, type(None)):
        return partial(_plain, annotation or type(None))
    kind = get_origin(annotation) or annotation
    inner = get_args(annotation)
    if kind in (Union, types.UnionType):
        return partial(_one_of, [_converter(each) for each in inner])
    if kind in (list, Sequence):
        return partial(_list, _converter(inner[0] if inner else Any))
    if kind in (dict, Mapping):
        return partial(_dict, _converter(inner[1] if inner else Any))
    if is_dataclass(kind) and isinstance(kind, type):
        required = {each.name for each in fields(kind) if each.default is each.default_factory is MISSING}
        return partial(_record, kind, _fields(kind), required)
    if is_typeddict(kind):
        return partial(_record, dict, _fields(kind), kind.__required_keys__)
    raise BadAnnotation(
        f"{annotation!r} needs pydantic or msgspec: install one of them, or annotate it with dict"
    )


def _fields(kind: Any) -> dict[str, Callable[[Any], Any]]:
    return {name: _converter(annotation) for name, annotation in get_type_hints(kind).items()}


def _expect(kind: type, value: Any) -> None:
    if not isinstance(value, kind):
        raise ValueError(f"expected {kind.__name__}, got {value!r:.{_SHOWN}}")


def _plain(kind: type, value: Any) -> Any:
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:  # a bool is no int
        raise ValueError(f"expected {kind.__name__}, got {value!r:.{_SHOWN}}")
    return value


def _one_of(converters: Sequence[Callable[[Any], Any]], value: Any) -> Any:
    problems = []
    for convert in converters:
        try:
            return convert(value)
        except ValueError as error:
            problems.append(str(error))
    raise ValueError(", or ".join(problems))


def _list(convert: Callable[[Any], Any], value: Any) -> list[Any]:
    _expect(list, value)
    return [convert(each) for each in value]


def _dict(convert: Callable[[Any], Any], value: Any) -> dict[str, Any]:
    _expect(dict, value)
    return {name: convert(each) for name, each in value.items()}


def _record(
    make: Callable[..., Any], converters: Mapping[str, Callable[[Any], Any]], required: set[str], value: Any
) -> Any:
    """Return a dataclass or typed dictionary. Fields that it does not have are left out, as msgspec and pydantic do."""
    _expect(dict, value)
    missing = sorted(required - value.keys())
    if missing:
        raise ValueError(f"{', '.join(missing)} missing in {value!r:.{_SHOWN}}")
    return make(**{name: convert(value[name]) for name, convert in converters.items() if name in value})


# ---- values as bodies


def encode(value: Any) -> bytes:
    """Return the body of a value: bytes as they are, a str in UTF-8, all else as JSON. Raises TypeError."""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if isinstance(value, str):
        return value.encode()
    if _is_of(type(value), "pydantic", "BaseModel"):
        text: str = value.model_dump_json()
        return text.encode()
    if _is_of(type(value), "msgspec", "Struct"):
        body: bytes = import_module("msgspec").json.encode(value)
        return body
    return _dumps()(value)


@cache
def _dumps() -> Callable[[Any], bytes]:
    try:
        orjson: Any = import_module("orjson")
    except ImportError:
        return lambda value: json.dumps(value, default=_jsonable, separators=(",", ":")).encode()
    return partial(orjson.dumps, default=_jsonable)


def _jsonable(value: Any) -> Any:
    """Return what JSON takes instead of this value, for values within others. Raises TypeError."""
    if _is_of(type(value), "pydantic", "BaseModel"):
        return value.model_dump(mode="json")
    if _is_of(type(value), "msgspec", "Struct"):
        return import_module("msgspec").to_builtins(value)
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if hasattr(value, "isoformat"):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} cannot be published as JSON: {value!r:.{_SHOWN}}")
