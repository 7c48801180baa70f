"""The current files of Delta and Iceberg tables in directories of archives.

DELETE, MERGE and OPTIMIZE write new files and leave the old ones where they are, until VACUUM. So a reader of such a directory
takes the files that the table lists. Only Parquet files belong to a table; others are read as without it.

A directory has a table if it has `_delta_log`, or `metadata` with Iceberg's files. Iceberg's may be elsewhere: then nsq-to-file
has left an empty file in `_nsq_tables`, whose name is the location of the table.

It is not known where in a table the rows of a part of it are, since OPTIMIZE may have put them elsewhere. So all current files
of a table are read, or none.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote, unquote

from nsqd_py.stores.directories import DELTA_LOG, POINTERS, Entry, Files, directories_above
from nsqd_py.stores.formats import COLUMNS, PARQUET_MAGIC
from nsqd_py.stores.object_stores import NO_SETTINGS, S3_SCHEMES, delta_options, iceberg_properties

_METADATA = "metadata"
_DELTA_VERSION = re.compile(r"\d{20}\.")
# 00012-<uuid>.metadata.json and v12.metadata.json, also with .gz in between
_VERSION = re.compile(r"v?(\d+)(?:-[^/]*)?\.(?:gz\.)?metadata\.json(?:\.gz)?")
_ANY_S3 = re.compile(rf"(?:{'|'.join(S3_SCHEMES)})://")
# The features of Delta with which a file has the rows and the columns of the table.
_KNOWN_FEATURES = {
    "columnMapping",
    "deletionVectors",
    "timestampNtz",
    "v2Checkpoint",
    "vacuumProtocolCheck",
    "typeWidening",
}


class UnreadableTable(Exception):
    """The current files of a table are not known, or do not have its rows; str(error) says why."""


class _Table(NamedTuple):
    kind: str
    location: str

    def __str__(self) -> str:
        return f"the {self.kind} table in {self.location}"


def pointer_to(location: str) -> str:
    """Return the name, in a directory of archives, of the empty file that says which Iceberg table the files belong to."""
    return f"{POINTERS}/{quote(location, safe='')}"


def _pointed_at(name: str) -> str:
    """Return the location of the table; "" for the name of another file."""
    location = _local(unquote(name))
    if location.startswith("/") or "://" in location:
        return location
    return ""


def is_in(directory: str, location: str) -> bool:
    """True if the location of a table is this directory."""
    return _identity(f"{directory}/x") == _identity(f"{_local(location)}/x")


def everything(path: str) -> bool:
    return True


def walk(
    directory: str,
    files: Files,
    is_chosen: Callable[[str], bool] = everything,
    settings: Mapping[str, str] = NO_SETTINGS,
) -> Iterator[Entry]:
    """Yield the files below a directory that are to be read: those that are chosen, and instead of a table's files its
    current ones.

    is_chosen  False for paths that a pattern leaves out

    Raises UnreadableTable, and what `files` raises.
    """
    entries = {entry.path: entry for entry in files.walk(directory)}
    directory = directory.rstrip("/")
    above = {directory, *directories_above(directory), *_may_have_tables(entries)}
    tables_of = {path: _tables_of(path, files) for path in above}
    roots = {path: tables for path, tables in tables_of.items() if tables}
    paths = [path for path in entries if is_chosen(path)]
    if roots:
        paths = _Selection(directory, entries, paths, files, settings, roots).paths()
    for path in paths:
        entry = entries.get(path) or files.find(path)
        if entry is None:
            raise UnreadableTable(f"the table in {directory} lists {path}, which is not there")
        yield entry


def rewritten_files(paths: Iterable[str], files: Files) -> set[str]:
    """Return those of some files that belong to a table, and have no current rows of it. Raises UnreadableTable."""
    by_directory: dict[str, list[str]] = {}
    for path in paths:
        by_directory.setdefault(os.path.dirname(os.path.abspath(path)), []).append(path)
    found: set[str] = set()
    for directory, group in by_directory.items():
        tables: set[_Table] = set().union(
            *(_tables_of(above, files) for above in (directory, *directories_above(directory)))
        )
        if tables:
            live = {_identity(uri) for table in tables for uri in _files_of(table, files, NO_SETTINGS)}
            found.update(path for path in group if _identity(path) not in live and _is_parquet(path, files))
    return found


# --- where tables are


def _tables_of(directory: str, files: Files) -> set[_Table]:
    """Return the tables that the files of a directory belong to."""
    found = set()
    if any(map(_DELTA_VERSION.match, files.names(f"{directory}/{DELTA_LOG}"))):
        found.add(_Table("Delta", directory))
    if any(map(_VERSION.fullmatch, files.names(f"{directory}/{_METADATA}"))):
        found.add(_Table("Iceberg", directory))
    pointed_at = map(_pointed_at, files.names(f"{directory}/{POINTERS}"))
    return found | {_Table("Iceberg", location) for location in pointed_at if location}


def _may_have_tables(paths: Iterable[str]) -> set[str]:
    """Return the directories that may have tables, by the names below them."""
    found: set[str] = set()
    for path in paths:
        parent, _, name = path.rpartition("/")
        if name == DELTA_LOG:
            found.add(parent)
        elif parent.endswith((f"/{_METADATA}", f"/{POINTERS}")):
            found.add(parent.rpartition("/")[0])
    return found


def _local(uri: str) -> str:
    """Return a `file:` URI, as Iceberg writes it, as a path; other URIs as they are."""
    if uri.startswith("file:"):
        return "/" + uri.removeprefix("file:").lstrip("/")
    return uri.rstrip("/")


def _identity(path: str) -> str:
    """Return the same text for all ways to write a path."""
    path = _local(path)
    if "://" in path:
        return _ANY_S3.sub("s3://", path)
    directory, _, name = os.path.abspath(path).rpartition("/")
    return f"{_real_directory(directory)}/{name}"


@lru_cache(maxsize=1024)
def _real_directory(directory: str) -> str:
    return os.path.realpath(directory)


def _is_parquet(path: str, files: Files) -> bool:
    if path.endswith(".parquet"):
        return True
    return files.head(path, len(PARQUET_MAGIC)) == PARQUET_MAGIC


# --- which files are read


class _Selection:
    """The files to read below a directory, where some directories are roots of tables."""

    def __init__(
        self,
        directory: str,
        paths: Iterable[str],
        chosen: Sequence[str],
        files: Files,
        settings: Mapping[str, str],
        roots: Mapping[str, set[_Table]],
    ) -> None:
        self._directory = directory
        self._files = files
        self._settings = settings
        self._roots = roots
        self._chosen = chosen
        self._is_chosen = set(chosen)
        self._by_identity = {_identity(path): path for path in paths}

    def paths(self) -> list[str]:
        """Raises UnreadableTable."""
        of_tables: dict[str, list[str]] = {root: [] for root in self._roots}
        named = set()
        selected = []
        for path in self._chosen:
            root = self._root_of(path)
            if root is None:
                selected.append(path)
            elif self._belongs_to_table(path, root):
                named.add(root)
            elif _is_parquet(path, self._files):
                of_tables[root].append(path)
            else:
                selected.append(path)
        for root, parquet in of_tables.items():
            if parquet or root in named or not (self._chosen or self._contains(root)):
                selected += self._current(root, parquet, is_named=root in named)
        return list(dict.fromkeys(selected))

    def _contains(self, root: str) -> bool:
        return f"{root}/".startswith(f"{self._directory}/")

    def _root_of(self, path: str) -> str | None:
        return next((above for above in directories_above(path) if above in self._roots), None)

    def _belongs_to_table(self, path: str, root: str) -> bool:
        """True for what the table has in its directory apart from rows."""
        first, _, rest = path.removeprefix(f"{root}/").partition("/")
        has_metadata = _Table("Iceberg", root) in self._roots[root]
        if first == DELTA_LOG and not rest:
            return True
        return first == POINTERS or (first == _METADATA and has_metadata)

    def _current(self, root: str, parquet: Sequence[str], *, is_named: bool) -> list[str]:
        """Return the current files of the tables of a root, if all of them are chosen. Raises UnreadableTable."""
        uris: list[str] = []
        for table in sorted(self._roots[root]):
            uris += _files_of(table, self._files, self._settings)
        live = {_identity(uri): uri for uri in uris}
        there = [self._by_identity[identity] for identity in live if identity in self._by_identity]
        current = [path for path in there if path in self._is_chosen]
        is_whole = len(current) == len(there) and (bool(current) or is_named or not live)
        if not is_whole or (not self._contains(root) and len(there) < len(live)):
            kind = min(self._roots[root]).kind
            if parquet and self._contains(root):
                what = parquet[0].rpartition("/")[0]
            else:
                what = self._directory
            raise UnreadableTable(
                f"{what} is a part of the {kind} table in {root}: read {root}, and choose by topic and time, since OPTIMIZE and "
                "DELETE may have moved rows of this part to any file of the table"
            )
        elsewhere = [_as_in(root, uri) for identity, uri in live.items() if identity not in self._by_identity]
        return [*current, *elsewhere]


def _as_in(root: str, uri: str) -> str:
    """Return the URI with the scheme of the root, where several schemes are of one store."""
    scheme = _ANY_S3.match(root)
    if scheme:
        return _ANY_S3.sub(scheme[0], uri)
    return _local(uri)


# --- what a table lists


def _files_of(table: _Table, files: Files, settings: Mapping[str, str]) -> list[str]:
    """Return the URIs of the current files of a table. Raises UnreadableTable."""
    location = _ANY_S3.sub("s3://", table.location)
    try:
        if table.kind == "Delta":
            return _delta_files(table, location, settings)
        return _iceberg_files(table, f"{location}/{_METADATA}/{_newest(table, files)}", settings)
    except UnreadableTable:
        raise
    except ImportError:
        raise UnreadableTable(
            f"{table}: pip install 'nsqd-py[{table.kind.lower()}]' to read its current files"
        ) from None
    except Exception as error:  # the packages raise many kinds
        raise UnreadableTable(f"{table} cannot be read: {_one_line(error)}") from error


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _delta_files(table: _Table, location: str, settings: Mapping[str, str]) -> list[str]:
    from deltalake import DeltaTable  # of an extra

    found = DeltaTable(location, storage_options=delta_options(location, settings))
    features = set(found.protocol().reader_features or ())
    unknown = features - _KNOWN_FEATURES
    if unknown:
        raise UnreadableTable(
            f"{table} uses the feature {min(unknown)}, which this reader of its files does not know"
        )
    metadata = found.metadata()
    if metadata.configuration.get("delta.columnMapping.mode", "none") != "none":
        raise UnreadableTable(
            f"{table} uses the feature columnMapping: its files have other names of columns than the table"
        )
    columns = COLUMNS.intersection(metadata.partition_columns)
    if columns:
        raise UnreadableTable(
            f"{table} is partitioned by {', '.join(sorted(columns))}, which is not in its files"
        )
    if "deletionVectors" in features and _has_deletion_vectors(found):
        raise UnreadableTable(
            f"{table} has deletion vectors, so deleted rows are still in its files; this writes the files again without them: "
            f"REORG TABLE delta.`{table.location}` APPLY (PURGE)"
        )
    uris: list[str] = found.file_uris()
    return uris


def _has_deletion_vectors(table: object) -> bool:
    try:
        return any(batch.num_rows for batch in table.deletion_vectors())  # type: ignore[attr-defined]
    except Exception:  # noqa: BLE001 - it names each vector's file and what is wrong with it, so there is one
        return True


def _newest(table: _Table, files: Files) -> str:
    """Return the name of the file with the newest metadata. Raises UnreadableTable."""
    versions: dict[int, list[str]] = {}
    for name in files.names(f"{table.location}/{_METADATA}"):
        match = _VERSION.fullmatch(name)
        if match:
            versions.setdefault(int(match[1]), []).append(name)
    if not versions:
        raise UnreadableTable(f"{table} has no metadata there")
    newest = max(versions)
    if len(versions[newest]) > 1:
        names = " and ".join(sorted(versions[newest])[:2])
        raise UnreadableTable(
            f"{table} has two files of version {newest}, and only its catalog knows which one was committed: {names}; the next "
            "commit decides, or remove the file that the catalog does not name"
        )
    return versions[newest][0]


def _iceberg_files(table: _Table, metadata: str, settings: Mapping[str, str]) -> list[str]:
    from pyiceberg.table import StaticTable  # of an extra

    found = StaticTable.from_metadata(metadata, iceberg_properties(metadata, settings))
    tasks = list(found.scan().plan_files())
    if any(task.delete_files for task in tasks):
        raise UnreadableTable(
            f"{table} has delete files, so deleted rows are still in its other files; Spark's procedure rewrite_data_files, with "
            "delete-file-threshold 1, writes these again"
        )
    return [task.file.file_path for task in tasks]
