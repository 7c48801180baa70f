"""One target under atheris: `python -m tests.fuzz.atheris_target NAME [flags of libFuzzer]`."""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["nsqd_py", "nsqlookupd_py", "nsqadmin_py", "nsq_spark"]):
    from tests.fuzz.targets import TARGETS


def main() -> None:
    name = sys.argv.pop(1)
    with TARGETS[name].open() as run:
        atheris.Setup(sys.argv, run)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
