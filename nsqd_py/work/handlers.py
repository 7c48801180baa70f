"""Declared handlers: one function, its topic and channel, how it is called, and what its calls pass to it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn, get_args, get_origin, get_type_hints

from nsqd_py.client.callables import is_coroutine_function, name_of, refuse_what_does_not_run
from nsqd_py.client.errors import BadClientOption
from nsqd_py.client.message import Message
from nsqd_py.protocol.outgoing import sub
from nsqd_py.work.batches import Batch
from nsqd_py.work.once import Once
from nsqd_py.work.outcomes import Retry
from nsqd_py.work.values import BadAnnotation, Decoder, decoder_of

_FIXED = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_LISTS = (list, Sequence)
_MESSAGE_NAME = "message"
_CONNECTION_NAME = "connection"


class BadHandler(BadClientOption, TypeError):
    """A handler that cannot be called, or whose declaration contradicts itself. The text names it, its topic, and a remedy."""


class Headers(dict[str, str]):
    """The headers of the envelope of a message, for handlers that have a parameter with this annotation."""


class Given(NamedTuple):
    """All that a call may pass to its function. Of a batch, the first three are lists."""

    value: Any
    message: Any
    headers: Any
    connection: Any


VALUE, MESSAGE, HEADERS, CONNECTION = range(len(Given._fields))


class Parameters(NamedTuple):
    """What the parameters of a function get: indexes into `Given`.

    decode  makes the value of a body; None if the function takes no value
    """

    positional: tuple[int, ...]
    named: Mapping[str, int]
    decode: Decoder | None

    @property
    def is_value_only(self) -> bool:
        return self.positional == (VALUE,) and not self.named


@dataclass(eq=False, slots=True, kw_only=True)
class Handler:
    """One declared handler. `App.handler` describes the fields.

    name        module and qualified name of the function
    is_async    the function is a coroutine function
    parameters  what its calls pass to it
    """

    function: Callable[..., Any]
    name: str
    topic: str
    channel: str
    concurrency: int
    max_in_flight: int
    time_limit_s: float | None
    rate: float | None
    batch: Batch | None
    retry: Retry
    once: Once | None
    is_async: bool
    parameters: Parameters

    def __str__(self) -> str:
        return f"{self.name} of {self.topic}/{self.channel}"


def make_handler(
    function: Callable[..., Any],
    topic: str,
    channel: str,
    *,
    concurrency: int = 1,
    max_in_flight: int | None = None,
    time_limit_s: float | None = None,
    rate: float | None = None,
    batch: Batch | None = None,
    retry: Retry | None = None,
    once: Once | None = None,
    longest_defer_s: float,
) -> Handler:
    """Return the handler of these declarations, as `App.handler` describes them. Raises BadHandler."""
    name = f"{getattr(function, '__module__', '')}.{name_of(function)}"
    declared = _Declared(name, topic)
    try:
        sub(topic, channel)
        refuse_what_does_not_run("the function", function, is_awaited=True)
    except ValueError as error:
        declared.refuse(str(error))
    most = concurrency * (batch.most if batch else 1)
    declared.check("concurrency", concurrency, concurrency >= 1, "at least 1")
    in_flight = most if max_in_flight is None else max_in_flight
    declared.check(
        "max_in_flight", in_flight, in_flight >= most, f"at least {most}, what its calls handle together"
    )
    declared.check("time_limit_s", time_limit_s, time_limit_s is None or time_limit_s > 0, "above 0, or None")
    declared.check("rate", rate, rate is None or rate > 0, "above 0, in calls a second, or None")
    retry = retry or Retry()
    longest = f"at most {longest_defer_s}, the longest_defer_s of the app"
    declared.check("the most_s of retry", retry.most_s, retry.most_s <= longest_defer_s, longest)
    if once is not None and batch is not None:
        declared.refuse("once works on single messages: remove batch, or write the ids in the handler")
    return Handler(
        function=function,
        name=name,
        topic=topic,
        channel=channel,
        concurrency=concurrency,
        max_in_flight=in_flight,
        time_limit_s=time_limit_s,
        rate=rate,
        batch=batch,
        retry=retry,
        once=once,
        is_async=is_coroutine_function(function),
        parameters=_parameters(
            declared, function, has_batch=batch is not None, has_connection=once is not None
        ),
    )


class _Declared(NamedTuple):
    """A handler that is being declared, for errors."""

    name: str
    topic: str

    def refuse(self, text: str) -> NoReturn:
        raise BadHandler(f"handler {self.name} of topic {self.topic}: {text}")

    def check(self, name: str, value: object, is_valid: bool, expected: str) -> None:
        if not is_valid:
            self.refuse(f"{name} must be {expected}, got {value}")


def _parameters(
    declared: _Declared, function: Callable[..., Any], *, has_batch: bool, has_connection: bool
) -> Parameters:
    positional: list[int] = []
    named: dict[str, int] = {}
    decode: Decoder | None = None
    values: list[str] = []
    has_gap = False  # a parameter was left to its default: those after it are named
    annotations = _annotations(declared, function)
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind == inspect.Parameter.VAR_POSITIONAL:
            declared.refuse(f"*{parameter.name} gets nothing: name a parameter for the value")
        if parameter.kind == inspect.Parameter.VAR_KEYWORD:
            continue
        annotation = annotations.get(parameter.name, Any)
        role = _role(parameter, annotation, has_batch=has_batch, has_connection=has_connection)
        if role == VALUE:
            if values and parameter.default is not inspect.Parameter.empty:
                has_gap = True
                continue
            values.append(parameter.name)
            decode = _decoder(declared, parameter.name, annotation, has_batch=has_batch)
        if parameter.kind in _FIXED and not has_gap:
            positional.append(role)
        else:
            named[parameter.name] = role
    if len(values) > 1:
        declared.refuse(
            f"it has several parameters for one value, {', '.join(values)}: keep one, give the others defaults, or "
            "annotate them with Message or Headers"
        )
    return Parameters(tuple(positional), named, decode)


def _annotations(declared: _Declared, function: Callable[..., Any]) -> dict[str, Any]:
    target: Any = function
    while hasattr(target, "func"):  # functools.partial
        target = target.func
    if not inspect.isroutine(target):
        target = type(target).__call__
    try:
        return get_type_hints(target)
    except NameError as error:
        declared.refuse(
            f"an annotation cannot be resolved ({error}): import the type at run time, not under TYPE_CHECKING, and "
            "define it at the top of its module"
        )


def _role(parameter: inspect.Parameter, annotation: Any, *, has_batch: bool, has_connection: bool) -> int:
    """Return what a parameter gets, as an index into `Given`."""
    if has_batch and get_origin(annotation) in _LISTS:
        (annotation,) = get_args(annotation)
        if annotation in (Message, Headers):
            return MESSAGE if annotation is Message else HEADERS
        return VALUE
    if annotation is Message or (parameter.name == _MESSAGE_NAME and annotation is Any):
        return MESSAGE
    if annotation is Headers:
        return HEADERS
    if has_connection and (parameter.name == _CONNECTION_NAME or _is_connection(annotation)):
        return CONNECTION
    return VALUE


def _is_connection(annotation: Any) -> bool:
    kind = get_origin(annotation) or annotation
    return getattr(kind, "__name__", "") in ("Connection", "AsyncConnection")


def _decoder(declared: _Declared, name: str, annotation: Any, *, has_batch: bool) -> Decoder:
    if has_batch and annotation is not Any:
        if get_origin(annotation) not in _LISTS and annotation is not list:
            declared.refuse(
                f"the parameter {name} gets the values of a batch: annotate it with a list, as in list[dict], not {annotation!r}"
            )
        (annotation,) = get_args(annotation) or (Any,)
    try:
        return decoder_of(annotation)
    except BadAnnotation as error:
        declared.refuse(f"the parameter {name}: {error}")
