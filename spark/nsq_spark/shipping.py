"""Our code for executors that do not share this machine's files: the packages in one zip file."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

PACKAGES = ("nsqd_py", "nsq_spark", "nsq_tools", "pyspark_nsq")


def zip_packages(path: Path) -> Path:
    """Write the packages to a new zip file at `path`, as Spark's `addPyFile` takes it. Return the path."""
    with ZipFile(path, "w", ZIP_DEFLATED, compresslevel=1) as archive:
        for package in PACKAGES:
            folder = _folder_of(package)
            for module in sorted(folder.rglob("*.py")):
                archive.write(module, module.relative_to(folder.parent))
    return path


def import_folders() -> list[str]:
    """Return the folders that the packages are imported from: several in a checkout, one after `pip install`."""
    return list(dict.fromkeys(str(_folder_of(package).parent) for package in PACKAGES))


def _folder_of(package: str) -> Path:
    spec = find_spec(package)
    assert spec is not None and spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0]).resolve()
