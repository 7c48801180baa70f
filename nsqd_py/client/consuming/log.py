"""Where consumers tell what they do: any object with these methods, such as a logger of the standard library."""

from __future__ import annotations

import logging
from typing import Protocol


class ClientLog(Protocol):
    """`text % args` is the line. `nsqd_py.runtime.logs.Log` and `logging.Logger` are such."""

    def debug(self, text: str, /, *args: object) -> None: ...
    def info(self, text: str, /, *args: object) -> None: ...
    def warning(self, text: str, /, *args: object) -> None: ...
    def error(self, text: str, /, *args: object) -> None: ...
    def exception(self, text: str, /, *args: object) -> None: ...


def standard_log() -> ClientLog:
    """The logger `nsqd_py.client`."""
    return logging.getLogger("nsqd_py.client")
