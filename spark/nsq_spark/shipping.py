"""Our code for executors that do not share this machine's files: the packages in one zip file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

PACKAGES = ("nsqd_py", "pyspark_nsq", "spark", "tools")
ROOT = Path(__file__).resolve().parent.parent


def zip_packages(path: Path) -> Path:
    """Writes the packages to a new zip file at `path`, as Spark's `addPyFile` takes it; returns the path."""
    with ZipFile(path, "w", ZIP_DEFLATED, compresslevel=1) as archive:
        for module in _modules():
            archive.write(module, module.relative_to(ROOT))
    return path


def _modules() -> Iterator[Path]:
    for package in PACKAGES:
        yield from sorted((ROOT / package).rglob("*.py"))
