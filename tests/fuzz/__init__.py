"""Fuzzing of everything that reads bytes of others: `python -m tests.fuzz --seconds 600 [--only PATTERN]`."""
