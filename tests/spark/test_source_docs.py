"""docs/spark.md: its tables say what is declared, and its examples do what they say, in the Spark of these tests.

`tests/docs` runs them as they are printed, each with a Spark of its own, which takes longer.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from deltalake import DeltaTable

from nsq_spark.schema import COLUMNS
from nsq_spark.source.live_options import LIVE_OPTIONS
from nsq_spark.source.options import READ_OPTIONS, WRITE_OPTIONS
from nsq_tools.to_file.formats import convert
from tests.support.archives import BASE_NS, Message, framed, messages
from tests.support.nsqd_process import NsqdProcess
from tests.support.wire import bodies

# One Spark for all of them.
pytestmark = [pytest.mark.ours, pytest.mark.xdist_group("spark")]

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs/spark.md").read_text("utf-8")
LIMIT_S = 180
CODE = re.compile(r"```python\n# ([^\n]+)\n(.*?)```", re.DOTALL)
ADDRESS = "127.0.0.1:4150"
SCRIPTS = {name: code for name, code in CODE.findall(TEXT) if name != "cell"}
CELLS = [code for name, code in CODE.findall(TEXT) if name == "cell"]

# Puts the places of the test in those of the page.
Placed = Callable[[str], str]


@pytest.fixture
def placed(tmp_path: Path) -> Placed:
    """An archive with 60 orders, of which 20 are errors, over two hours, and 5 clicks."""
    archive = tmp_path / "archive"
    archive.mkdir()
    orders = [
        Message(
            b'{"level":"%s","n":%d}' % (b"error" if number % 3 == 0 else b"info", number),
            timestamp_ns=BASE_NS + number * 60 * 10**9,
        )
        for number in range(60)
    ]
    clicks = [Message(b"click", "clicks")] * 5
    (archive / "all.framed").write_bytes(framed([orders[:30], clicks, orders[30:]]))
    return lambda code: code.replace('"/archive"', f'"{archive}"').replace("/tables/", f"{tmp_path}/tables/")


def run(code: str) -> dict[str, Any]:
    """In this process, with the session that there is. Return its names."""
    names: dict[str, Any] = {}
    exec(compile(code.replace("spark.stop()", ""), "docs/spark.md", "exec"), names)
    return names


def inline(pattern: str) -> str:
    """Return code within a sentence of the page."""
    (code,) = re.findall(f"`({pattern})`", TEXT, re.DOTALL)
    return " ".join(str(code).split())


@pytest.mark.slow
def test_what_a_script_publishes(spark: Any, placed: Placed, nsqd: NsqdProcess) -> None:
    nsqd.create("orders_again", "c")
    run(placed(SCRIPTS["errors.py"]).replace(ADDRESS, f"127.0.0.1:{nsqd.tcp_port}"))
    nsqd.wait_for_channel("orders_again", "c", depth=16)
    with nsqd.connect() as client:
        client.sub("orders_again", "c", rdy_count=16)
        found = [json.loads(body) for body in bodies(client.consume(16))]
    assert sorted(one["n"] for one in found) == list(range(0, 47, 3))


@pytest.mark.slow
def test_a_topic_into_a_table(spark: Any, placed: Placed, tmp_path: Path, nsqd: NsqdProcess) -> None:
    nsqd.create("orders", "c")
    script = placed(SCRIPTS["follow.py"]).replace("127.0.0.1:4151", f"127.0.0.1:{nsqd.http_port}")
    for count in 1, 2:
        nsqd.post("/pub?topic=orders", b"order")
        run(script)
        assert spark.read.parquet(str(tmp_path / "tables/live")).count() == count


@pytest.mark.slow
def test_a_batch_that_is_written_again_is_there_once(
    spark: Any, placed: Placed, tmp_path: Path, nsqd: NsqdProcess
) -> None:
    nsqd.create("orders", "c")
    script = placed(SCRIPTS["once.py"]).replace("127.0.0.1:4151", f"127.0.0.1:{nsqd.http_port}")
    table = str(tmp_path / "tables/once")
    for count in 1, 2:
        nsqd.post("/pub?topic=orders", b"order")
        names = run(script)
        batch = spark.read.format("nsq").options(nsqd=f"127.0.0.1:{nsqd.http_port}", topic="orders").load()
        names["append"](batch, count - 1)
        assert DeltaTable(table).to_pyarrow_table().num_rows == count
    progress = names["query"].lastProgress
    assert eval(inline(r"json\.loads\(query\.last[^`]*"), {"query": names["query"], "json": json}), progress
    nsqd.post("/pub?topic=orders", b"order")
    merge = inline(r"DeltaTable\(TABLE\)\.merge[^`]*")
    for _ in range(2):
        eval(merge, {"DeltaTable": DeltaTable, "TABLE": table, "batch": batch})
        assert DeltaTable(table).to_pyarrow_table().num_rows == 3


@pytest.mark.slow
def test_a_new_checkpoint_that_begins_where_another_ended(
    spark: Any, placed: Placed, nsqd: NsqdProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    nsqd.create("orders", "c")
    nsqd.post("/pub?topic=orders", b"order")
    address = f"127.0.0.1:{nsqd.http_port}"
    run(placed(SCRIPTS["follow.py"]).replace("127.0.0.1:4151", address))
    run(placed(SCRIPTS["where.py"]))
    nsqd.post("/pub?topic=orders", b"another")
    places = capsys.readouterr().out.splitlines()[-1]
    rest = spark.read.format("nsq").options(nsqd=address, topic="orders", startingOffsets=places).load()
    assert [bytes(row.body) for row in rest.collect()] == [b"another"]


def test_a_table_that_sparks_own_readers_read(
    spark: Any, placed: Placed, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = placed(SCRIPTS["fast.py"])
    (tmp_path / "archive" / "all.framed").unlink()
    convert(written_framed(tmp_path, messages(90)), tmp_path / "archive" / "all.parquet", "zstd")
    run(code)
    assert capsys.readouterr().out == "60\n"


def written_framed(directory: Path, some: list[Message]) -> Path:
    path = directory / "some.framed"
    path.write_bytes(framed([some]))
    return path


@pytest.mark.slow
def test_the_cells_of_a_notebook(placed: Placed, tmp_path: Path, spark_environment: dict[str, str]) -> None:
    pytest.importorskip("ipykernel")
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(placed(code)) for code in CELLS])
    client = nbclient.NotebookClient(
        notebook, timeout=LIMIT_S, resources={"metadata": {"path": str(tmp_path)}}
    )
    client.create_kernel_manager()
    client.km.kernel_cmd = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    client.execute(env=spark_environment)
    table, sizes = (cell.outputs[-1]["data"]["text/plain"] for cell in notebook.cells)
    assert re.findall(r"(orders|clicks) +(\d+)", table) == [("clicks", "5"), ("orders", "60")]
    assert "Row(topic='clicks', avg(size)=5.0)" in sizes


# ---- its tables


def rows_below(title: str) -> list[list[str]]:
    part = TEXT.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in part.splitlines() if line.startswith("| `")]
    return [[cell.strip().replace("\\|", "|") for cell in row] for row in rows]


def test_the_table_of_columns() -> None:
    assert rows_below("Columns") == [[f"`{column.name}`", column.ddl, column.meaning] for column in COLUMNS]


@pytest.mark.parametrize(
    ("title", "options"),
    [
        ("A live topic", LIVE_OPTIONS),
        ("Options of reading", READ_OPTIONS),
        ("Options of writing", WRITE_OPTIONS),
    ],
)
def test_the_tables_of_options(title: str, options: tuple[Any, ...]) -> None:
    rows = rows_below(title)[-len(options) :]
    assert rows == [
        [f"`{option.name}`", f"`{option.default}`" if option.default else "", option.meaning]
        for option in options
    ]
