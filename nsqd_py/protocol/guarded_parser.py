"""The parser of a client that needs permissions. Between the commands it returns requests for permission.

Permission for consecutive PUBs to one topic is requested once, until `forget_pub`.
"""

from __future__ import annotations

from nsqd_py.protocol.command_table import AFTER_BODY, BEFORE_BODY
from nsqd_py.protocol.commands import SLICE_READ, Command, PermissionRequest, Sub
from nsqd_py.protocol.parser import CommandParser
from nsqd_py.protocol.session import Session


class GuardedParser(CommandParser):
    """A `CommandParser` with permissions. It is a separate class, so that the other one does no work for them."""

    __slots__ = ("_was_asked",)

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._was_asked = False

    @property
    def missing_body_bytes(self) -> int:
        """0: each body waits for a permission."""
        return 0

    def _command_line(self) -> Command | None:
        command = super()._command_line()
        if isinstance(command, Sub):
            return PermissionRequest("SUB", command.topic_name, command.channel_name, command)
        return command

    def _command_with_body(self) -> Command | None:
        spec = self._spec
        assert spec is not None
        topic_name = self._params[1] if spec.permission else b""
        if spec.permission == BEFORE_BODY and not self._was_asked:
            self._was_asked = True
            return PermissionRequest(spec.name, topic_name, b"", None)
        command = super()._command_with_body()
        if command is None or command is SLICE_READ:
            return command
        self._was_asked = False
        if spec.permission == AFTER_BODY:
            return PermissionRequest(spec.name, topic_name, b"", command)
        return command
