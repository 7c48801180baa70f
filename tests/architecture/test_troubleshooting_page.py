"""docs/troubleshooting.md has an entry for every error that a user of nsqd, nsqlookupd or the client can get."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from nsqd_py.client import errors
from tests.architecture.sources import ROOT, modules, nodes_of, tree_of

PAGE = (ROOT / "docs/troubleshooting.md").read_text("utf-8")


def declared() -> Iterator[str]:
    """The codes of the TCP protocol's errors, and the messages of HTTP errors."""
    for module in modules("nsqd_py", "nsqlookupd_py"):
        for node in nodes_of(tree_of(module)):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id in ("HttpError", "BodyRule")
            ):
                yield from (
                    arg.value
                    for arg in node.args[1:2]
                    if isinstance(arg, ast.Constant) and isinstance(arg.value, str)
                )
            elif (
                isinstance(node, ast.Assign)
                and ast.unparse(node.targets[0]) == "code"
                and isinstance(node.value, ast.Constant)
            ):
                yield str(node.value.value)


def has_an_entry(name: str) -> bool:
    return name in PAGE or any(
        name.startswith(kind) and f"{kind}…" in PAGE for kind in ("MISSING_ARG_", "INVALID_ARG_")
    )


def test_every_error_of_a_server_has_an_entry() -> None:
    names = set(declared())
    assert len(names) > 40
    assert {name for name in names if not has_an_entry(name)} == set()


def test_every_error_of_the_client_has_an_entry() -> None:
    names = {
        name
        for name, item in vars(errors).items()
        if isinstance(item, type) and item.__module__ == errors.__name__
    }
    assert len(names) > 10
    assert {name for name in names - {"NsqClientError", "AtAddress"} if f"`{name}`" not in PAGE} == set()
