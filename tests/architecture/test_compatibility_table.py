"""docs/compatibility.md names every error that a client can get, or says that it is as in Go."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs/compatibility.md").read_text("utf-8")
# Messages of Go's nsqd and nsqlookupd, and codes of its TCP protocol, which mean the same here.
OF_GO = """
INVALID_REQUEST MISSING_ARG_TOPIC MISSING_ARG_CHANNEL MISSING_ARG_NODE INVALID_TOPIC INVALID_ARG_TOPIC INVALID_ARG_CHANNEL
INVALID_DEFER MSG_EMPTY INVALID_OPTION INVALID_VALUE TLS_REQUIRED TOPIC_NOT_FOUND CHANNEL_NOT_FOUND NOT_FOUND
METHOD_NOT_ALLOWED MSG_TOO_BIG BODY_TOO_BIG BAD_BODY BAD_MESSAGE INTERNAL_ERROR E_INVALID E_BAD_PROTOCOL E_BAD_TOPIC
E_BAD_CHANNEL E_BAD_BODY E_BAD_MESSAGE E_AUTH_DISABLED E_AUTH_FIRST E_AUTH_FAILED E_UNAUTHORIZED E_FIN_FAILED E_REQ_FAILED
E_TOUCH_FAILED
"""


def declared() -> Iterator[str]:
    """The codes of the TCP protocol's errors, and the messages of HTTP errors."""
    for path in sorted((ROOT / "nsqd_py").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("HttpError", "BodyRule"):
                yield from (arg.value for arg in node.args[1:2] if isinstance(arg, ast.Constant) and isinstance(arg.value, str))
            elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "code" and isinstance(node.value, ast.Constant):
                yield str(node.value.value)


def test_every_error_is_on_the_page_or_as_in_go() -> None:
    names = set(declared())
    assert len(names) > 40
    assert {name for name in names if name not in PAGE and name not in OF_GO} == set()
