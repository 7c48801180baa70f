"""What is said of errors of the system."""

from __future__ import annotations


def describe(error: OSError) -> str:
    """In words, and with the file where there is one."""
    text = error.strerror or str(error)
    return f"{error.filename}: {text}" if error.filename else text
