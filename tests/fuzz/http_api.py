"""`make fuzz` for the HTTP paths: schemathesis sends what docs/openapi*.yaml allow, and what they do not, to real daemons.

It fails where an answer is a server error, or has a status, type, header or JSON that the description does not have.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import nsqd_py

DOCS = Path(__file__).resolve().parents[2] / "docs"
# These end the process or take seconds each.
LEFT_OUT = "drain|promote|profile"
_CONFORMANCE = ("status_code", "content_type", "response_headers", "response_schema")
CHECKS = ",".join(["not_a_server_error", *(f"{name}_conformance" for name in _CONFORMANCE)])


def main() -> int:
    failed = 0
    with nsqd_py.embedded(nsqds=1, lookupd=True) as cluster:
        servers = {
            "openapi.yaml": cluster.nsqds[0].http_address,
            "openapi-nsqlookupd.yaml": cluster.lookupd_http_address,
        }
        for page, address in servers.items():
            command = [
                Path(sys.executable).with_name("schemathesis"),
                "run",
                DOCS / page,
                "--url",
                f"http://{address}",
            ]
            failed += subprocess.call(
                [*command, "--checks", CHECKS, "--exclude-path-regex", LEFT_OUT, *sys.argv[1:]]
            )
    return failed


if __name__ == "__main__":
    sys.exit(main())
