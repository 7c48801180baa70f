"""Examples with several processes, and in a notebook."""

from __future__ import annotations

import re

import pytest

from tests.examples.conftest import BIN, EXAMPLES, importable_from
from tests.examples.test_consumers import wait_until_all_are_finished

pytestmark = pytest.mark.ours


def test_processes_share_the_work(nsqd, start):
    start(BIN / "nsq-worker", "processes:app", "--processes=4", PYTHONPATH=importable_from(EXAMPLES))
    example = start("processes.py")
    assert example.wait_for_end() == 0
    results = re.findall(r"^(\d+) (\d+) by (\d+)$", example.output(), re.MULTILINE)
    assert sorted(int(limit) for limit, _, _ in results) == list(range(1000, 41_000, 1000))
    assert ("1000", "168") in {(limit, primes) for limit, primes, _ in results}
    assert len({process for _, _, process in results}) > 1
    wait_until_all_are_finished(nsqd, "jobs")


def test_the_cells_of_the_notebook_run(tmp_path):
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    notebook = nbformat.read(EXAMPLES / "notebook.ipynb", as_version=4)
    assert all(not cell.get("outputs") for cell in notebook.cells), "outputs are not kept in the repository"
    nbclient.NotebookClient(notebook, timeout=60, resources={"metadata": {"path": str(tmp_path)}}).execute()
    (table,) = [
        output["data"]["text/plain"]
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        if output.output_type == "execute_result" and "customer" in output["data"]["text/plain"]
    ]
    assert re.search(r"ann +50 +2450\nben +50 +2500", table)
