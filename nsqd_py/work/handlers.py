"""Declared handlers: one function, its topic and channel, how it is called, and what its calls pass to it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple, NoReturn, get_args, get_origin, get_type_hints

from nsqd_py.client.callables import is_coroutine_function, name_of, refuse_what_does_not_run
from nsqd_py.client.errors import BadClientOption
from nsqd_py.client.message import Message
from nsqd_py.protocol.names import dead_letter_topic
from nsqd_py.protocol.outgoing import sub
from nsqd_py.work.once import Once
from nsqd_py.work.outcomes import Retry, is_finite, is_whole
from nsqd_py.work.values import BadAnnotation, Decoder, decoder_of

_LISTS = (list, Sequence)
_MESSAGE_NAME = "message"
_CONNECTION_NAME = "connection"
_EXAMPLES = {
    "batch": "Batch(most=100)",
    "retry": "Retry(attempts=5)",
    "once": "Once(connect)",
    "concurrency": "8",
    "max_in_flight": "8",
    "time_limit_s": "60",
    "rate": "10, which is calls a second",
}
_HANDLER = "nsqd_py_handler"  # the attribute of a declared function


class BadHandler(BadClientOption, TypeError):
    """A handler that cannot be called, or whose declaration contradicts itself. The text names it, its topic, and a remedy."""


class Headers(dict[str, str]):
    """The headers of the envelope of a message, for handlers that have a parameter with this annotation."""


@dataclass(frozen=True, slots=True)
class Batch:
    """A handler gets lists: of up to `most` messages, and no later than `within_s` after the first one came.

    Raises ValueError, with the name of the field.
    """

    most: int
    within_s: float = 0.5

    def __post_init__(self) -> None:
        if not is_whole(self.most):
            raise ValueError(f"most must be a whole number, got {self.most!r}")
        if not is_finite(self.within_s):
            raise ValueError(f"within_s must be a finite number of seconds, got {self.within_s!r}")
        if self.most < 1:
            raise ValueError(f"most must be at least 1, got {self.most}")
        if self.within_s < 0:
            raise ValueError(f"within_s must be at least 0, got {self.within_s}")


class Given(NamedTuple):
    """All that a call may pass to its function. Of a batch, the first three are lists."""

    value: Any
    message: Any
    headers: Any
    connection: Any = None


VALUE, MESSAGE, HEADERS, CONNECTION = range(len(Given._fields))


@dataclass(eq=False, kw_only=True)
class Handler:
    """One declared handler. `App.handler` describes the first fields.

    longest_defer_s  the longest delay that nsqd takes
    spare_attempts   attempts beyond those of retry, for a function that waits by `Requeue`
    name             module and qualified name of the function
    is_async         the function is a coroutine function
    roles            what each parameter gets, as an index into `Given`
    decode           makes the value of a body; None if the function takes no value

    Raises BadHandler.
    """

    function: Callable[..., Any]
    topic: str
    channel: str
    concurrency: int = 1
    max_in_flight: int | None = None
    time_limit_s: float | None = None
    rate: float | None = None
    batch: Batch | None = None
    retry: Retry = field(default_factory=Retry)
    once: Once | None = None
    longest_defer_s: float
    spare_attempts: int = 0
    name: str = field(init=False)
    is_async: bool = field(init=False)
    roles: dict[str, int] = field(init=False, default_factory=dict)
    decode: Decoder | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.name = f"{getattr(self.function, '__module__', '')}.{name_of(self.function)}"
        self.is_async = is_coroutine_function(self.function)
        try:
            sub(self.topic, self.channel)
            refuse_what_does_not_run("the function", self.function, is_awaited=True)
        except (ValueError, TypeError) as error:
            self.refuse(str(error))
        self._check_types()
        self._check("concurrency", self.concurrency, self.concurrency >= 1, "at least 1")
        together = self.concurrency * (self.batch.most if self.batch else 1)
        if self.max_in_flight is None:
            self.max_in_flight = together
        expected = f"at least {together}, the messages that its calls handle together"
        self._check("max_in_flight", self.max_in_flight, self.max_in_flight >= together, expected)
        is_limit = self.time_limit_s is None or self.time_limit_s > 0
        self._check("time_limit_s", self.time_limit_s, is_limit, "above 0, or None")
        self._check("rate", self.rate, self.rate is None or self.rate > 0, "above 0, or None")
        expected = f"at most {self.longest_defer_s}, the longest_defer_s of the app"
        self._check("most_s of retry", self.retry.most_s, self.retry.most_s <= self.longest_defer_s, expected)
        if self.once is not None and (self.batch is not None or self.is_async):
            self.refuse("once needs a plain function without batch: make it one, or insert the ids yourself")
        self._read_parameters()
        with suppress(AttributeError):  # a bound method has no attributes
            setattr(self.function, _HANDLER, self)

    def __str__(self) -> str:
        return f"{self.name} of {self.topic}/{self.channel}"

    @property
    def most_attempts(self) -> int | None:
        """The attempts after which a message is not called any more; None if there is no limit, or no dead letter."""
        if self.retry.attempts is None or dead_letter_topic(self.topic) == self.topic:
            return None
        return self.retry.attempts + self.spare_attempts

    def refuse(self, text: str) -> NoReturn:
        raise BadHandler(f"handler {self.name} of topic {self.topic}: {text}")

    def _check_types(self) -> None:
        kinds = {"batch": Batch, "retry": Retry, "once": Once}
        for name, kind in kinds.items():
            value = getattr(self, name)
            if value is not None and not isinstance(value, kind):
                self.refuse(
                    f"{name} must be a {kind.__name__}, as in {name}={_EXAMPLES[name]}, got {value!r}"
                )
        for name in ("concurrency", "max_in_flight"):
            value = getattr(self, name)
            is_default = name == "max_in_flight" and value is None
            if not (is_default or is_whole(value)):
                self.refuse(f"{name} must be a whole number, as in {name}={_EXAMPLES[name]}, got {value!r}")
        for name in ("time_limit_s", "rate"):
            value = getattr(self, name)
            if value is not None and not is_finite(value):
                self.refuse(f"{name} must be a finite number, as in {name}={_EXAMPLES[name]}, got {value!r}")

    def _check(self, name: str, value: object, is_valid: bool, expected: str) -> None:
        if not is_valid:
            self.refuse(f"{name} must be {expected}, got {value}")

    # ---- parameters

    def _read_parameters(self) -> None:
        annotations = self._annotations()
        values: list[str] = []
        for parameter in inspect.signature(self.function).parameters.values():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY):
                self.refuse(f"{parameter} is not passed by name: make it a plain parameter")
            if parameter.kind == parameter.VAR_KEYWORD:
                continue
            annotation = annotations.get(parameter.name, Any)
            role = self._role(parameter.name, annotation)
            if role == VALUE:
                if values and parameter.default is not parameter.empty:
                    continue
                values.append(parameter.name)
                self.decode = self._decoder(parameter.name, annotation)
            self.roles[parameter.name] = role
        if len(values) > 1:
            self.refuse(
                f"it takes several values, {', '.join(values)}, and a message has one: keep one of them, and give the "
                "others defaults, or annotate them with Message or Headers"
            )

    def _annotations(self) -> dict[str, Any]:
        target: Any = self.function
        while hasattr(target, "func"):  # functools.partial
            target = target.func
        if not inspect.isroutine(target):
            target = type(target).__call__
        try:
            return get_type_hints(target)
        except NameError as error:
            self.refuse(
                f"an annotation is not defined ({error}): import it at run time, not under TYPE_CHECKING, and define "
                "it at the top of its module"
            )

    def _role(self, name: str, annotation: Any) -> int:
        """Return what a parameter gets, as an index into `Given`."""
        if self.batch is not None and get_origin(annotation) in _LISTS:
            (annotation,) = get_args(annotation)
        if annotation is Message or (name == _MESSAGE_NAME and annotation is Any):
            return MESSAGE
        if annotation is Headers:
            return HEADERS
        is_connection = name == _CONNECTION_NAME or getattr(annotation, "__name__", "") == "Connection"
        if self.once is not None and is_connection:
            return CONNECTION
        return VALUE

    def _decoder(self, name: str, annotation: Any) -> Decoder:
        if self.batch is not None and annotation is not Any:
            if (get_origin(annotation) or annotation) not in _LISTS:
                self.refuse(f"{name} gets the values of a batch: annotate it with a list, as in list[dict]")
            (annotation,) = get_args(annotation) or (Any,)
        try:
            return decoder_of(annotation)
        except BadAnnotation as error:
            self.refuse(f"the parameter {name}: {error}")


def handler_of(declared: Handler | Callable[..., Any]) -> Handler:
    """Return the handler as which a function was declared last. Raises BadHandler if it was not."""
    if isinstance(declared, Handler):
        return declared
    found: Handler | None = getattr(declared, _HANDLER, None)
    if found is None:
        raise BadHandler(f"{name_of(declared)} is no handler: decorate it with @app.handler(topic)")
    return found
