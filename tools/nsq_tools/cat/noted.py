"""How many bytes finished files had, by the manifests of nsq-to-file."""

from __future__ import annotations

from dataclasses import dataclass, field

import orjson

from nsqd_py.stores.directories import MANIFESTS, Entry, Files, directories_above


@dataclass
class NotedSizes:
    """The sizes in the manifests of the directories above files. Each is read once."""

    _files: Files
    _read: dict[str, dict[str, int]] = field(default_factory=dict)

    def what_is_cut(self, entry: Entry) -> str:
        """Return a sentence about a file that is smaller than it was when nsq-to-file finished it; "" if it is not."""
        noted_bytes = self._of(entry.path)
        if entry.size_bytes >= noted_bytes:
            return ""
        return (
            f"damaged at {entry.size_bytes}: the end is missing, since the manifest of nsq-to-file has noted "
            f"{noted_bytes} bytes"
        )

    def _of(self, path: str) -> int:
        """From the manifest nearest to the root that names the file."""
        for directory in reversed(list(directories_above(path))):
            if directory not in self._read:
                self._read[directory] = self._manifest(directory)
            noted_bytes = self._read[directory].get(path.removeprefix(f"{directory}/"))
            if noted_bytes is not None:
                return noted_bytes
        return 0

    def _manifest(self, directory: str) -> dict[str, int]:
        """Return the size of each file. A later line of it is of a part behind, or of a file that has replaced it."""
        found: dict[str, int] = {}
        for manifest in filter(None, (self._files.find(f"{directory}/{name}") for name in MANIFESTS)):
            for line in self._files.head(manifest.path, manifest.size_bytes).splitlines():
                try:
                    fields = orjson.loads(line)
                    found[str(fields["path"])] = int(fields["offset"]) + int(fields["bytes"])
                except (ValueError, KeyError, TypeError):
                    continue  # torn by a kill, or of a later version
        return found
