"""The command nsq-to-http: sends each message in an HTTP request."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from nsq_tools.cli import Tool, lazily
from nsq_tools.to_http.options import PROGRAM


def main(argv: Sequence[str] | None = None) -> int:
    """Run nsq-to-http until a signal ends it. Return the exit status."""
    return Tool(PROGRAM, lazily("nsq_tools.to_http.requests", "check"), lazily("nsq_tools.to_http.run", "run")).main(argv)


if __name__ == "__main__":
    sys.exit(main())
