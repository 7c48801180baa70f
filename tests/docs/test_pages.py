"""Every shell and Python block of README.md, CONTRIBUTING.md and docs/ does what its page says.

`blocks.py` says which comments of a page tell how a block is run, `presumed.py` what is there before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile
from pathlib import Path

import pytest

from tests.docs.blocks import Block, page_names, read_page
from tests.docs.machine import Machine, open_machine
from tests.docs.presumed import PRESUMED, STARTS_ITS_OWN
from tests.docs.running import DEADLINE_S, Page
from tests.support.nsqd_process import REPOSITORY

pytestmark = pytest.mark.ours

# How many blocks of a page are not run; the comment above each of them says why. A page that is not here has none.
NOT_RUN = {
    "README.md": 2,  # `make test`; what `make run` starts
    "docs/archives.md": 1,  # a line of a manifest
    "docs/containers.md": 7,  # a container engine, twice; a cluster, four times; values of the chart
    "docs/debugging.md": 1,  # lines of a file
    "docs/index.md": 1,  # what README.md runs
    "docs/lease.md": 1,  # a bucket of a cloud
    "docs/nsqadmin.md": 5,  # behind a proxy; lines of a configuration; documents of webhooks
    "docs/operations.md": 4,  # lines of a log and of an answer, Kubernetes, an old certificate
    "docs/security.md": 1,  # certificates, logins; another nsqd
    "docs/spark.md": 6,  # two cells of a notebook, two archives in Parquet, a column of them, a store
    "docs/standby.md": 4,  # several machines
    "docs/take-over.md": 3,  # systemd, twice; a damaged file
    "docs/store.md": 8,  # buckets of a cloud, its policy; a file made by hand; DuckDB, which may abort; a Spark
    "docs/tools/nsq-to-http.md": 1,  # somebody's https server
    "docs/tools/spark-compact.md": 1,  # a cluster
    "docs/tools/spark-replay.md": 1,  # a cluster
    "docs/tutorial.md": 1,  # the installation
}
# They start a Spark for each block, which takes ten seconds. `make test` runs the README without its Sparks, and the
# tutorial up to its first one.
SPARK = {
    "README.md",
    "docs/spark.md",
    "docs/tools/spark-compact.md",
    "docs/tools/spark-replay.md",
    "docs/tutorial.md",
}
SPARK_DEADLINE_S = 240.0
# Eight of its programs import pyiceberg, a second of the processor each; tests of nsq-to-file commit to such tables too.
SLOW = {*SPARK, "docs/small-files.md"}

NAMES = page_names(REPOSITORY)
pages = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in PRESUMED]
)


@pytest.fixture
def cwd(tmp_path) -> Path:
    """The fresh directory in which a reader begins."""
    directory = tmp_path / "home"
    directory.mkdir()
    return directory


@pytest.fixture
def machine(tmp_path) -> Iterator[Machine]:
    machine = open_machine(tmp_path / "machine")
    yield machine
    machine.close()


@pages
def test_its_blocks_do_what_it_says(name, machine, cwd):
    if name in SPARK:
        pytest.importorskip("pyspark")
    if name in STARTS_ITS_OWN and not machine.has_default_ports:
        pytest.skip("the page starts servers on their default ports, which need a network namespace")
    run(name, machine, cwd, read_page(REPOSITORY, name))


def starts_spark(block: Block) -> bool:
    return block.kind == "run" and "spark" in block.code


def test_the_readme_without_spark(machine, cwd):
    name = "README.md"
    if not machine.has_default_ports:
        pytest.skip("the page starts servers on their default ports, which need a network namespace")
    blocks = [block for block in read_page(REPOSITORY, name) if not starts_spark(block)]
    PRESUMED[name](machine, cwd)
    with Page(machine, blocks, cwd) as page:
        page.run()


def test_the_tutorial_up_to_its_first_spark(machine, cwd):
    name = "docs/tutorial.md"
    if not machine.has_default_ports:
        pytest.skip("the page starts servers on their default ports, which need a network namespace")
    blocks = list(takewhile(lambda block: not starts_spark(block), read_page(REPOSITORY, name)))
    assert "nsq-to-file" in blocks[-1].code
    run(name, machine, cwd, blocks)


def run(name: str, machine: Machine, cwd: Path, blocks: Sequence[Block]) -> None:
    PRESUMED[name](machine, cwd)
    deadline_s = SPARK_DEADLINE_S if name in SPARK else DEADLINE_S
    with Page(machine, blocks, cwd, deadline_s) as page:
        page.run()


def test_every_page_with_blocks_is_run():
    assert {name for name in NAMES if read_page(REPOSITORY, name)} == set(PRESUMED)


def test_the_number_of_blocks_that_are_not_run():
    counts = {name: sum(block.kind == "not run" for block in read_page(REPOSITORY, name)) for name in NAMES}
    assert {name: count for name, count in counts.items() if count} == NOT_RUN
