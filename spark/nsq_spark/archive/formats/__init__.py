"""Readers of one part of a file, by its format.

record_file  `framed` archives, and nsqd's logs
records      finds one record after the other, also after damage
lines        the formats `lines` and `jsonl`
parquet      the format `parquet`, and rows as chunks
"""
