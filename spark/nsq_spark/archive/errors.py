"""What can go wrong with an archive. Each is one line that names the file, and can be sent between processes."""

from __future__ import annotations


class ArchiveError(Exception):
    """A file cannot be found, opened, or understood."""


class DamagedArchive(ArchiveError):
    """Bytes of a file that are no message; `position` is the first of them, in the decompressed file."""

    def __init__(self, path: str, position: int, what: str) -> None:
        super().__init__(path, position, what)
        self.path = path
        self.position = position
        self.what = what

    def __str__(self) -> str:
        return f"{self.path} is damaged at {self.position}: {self.what}; --skip-damaged reads what is left of it"
