"""Where the classes of Spark are kept between starts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nsq_spark.class_archive import class_archive
from nsq_spark.java import Java


@pytest.fixture
def spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Java, Path]:
    """A Java and the home of a Spark; the cache directory is tmp_path / "cache"."""
    for name in ("SPARK_HOME", "SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_DIST_CLASSPATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "java" / "lib" / "server").mkdir(parents=True)
    (tmp_path / "java" / "lib" / "server" / "classes.jsa").touch()
    (tmp_path / "spark" / "jars").mkdir(parents=True)
    return Java(tmp_path / "java", 17), tmp_path / "spark"


def test_one_java_and_one_spark_have_one_archive(spark: tuple[Java, Path], tmp_path: Path) -> None:
    found = class_archive(*spark)
    assert found is not None and found.parent == tmp_path / "cache" / "nsqd-py"
    assert class_archive(*spark) == found
    (spark[1] / "jars" / "new.jar").touch()
    os.utime(spark[1] / "jars", ns=(0, 1))
    assert class_archive(*spark) != found


def test_archives_of_others_are_removed_but_for_the_newest(spark: tuple[Java, Path], tmp_path: Path) -> None:
    own = class_archive(*spark)
    assert own is not None
    others = [own.with_name(f"spark-{number}.jsa") for number in range(3)]
    for number, path in enumerate([own, *others]):
        path.touch()
        os.utime(path, ns=(0, number))
    assert class_archive(*spark) == own
    assert sorted(own.parent.iterdir()) == sorted([own, others[-1]])


@pytest.mark.parametrize("name", ["SPARK_HOME", "HADOOP_CONF_DIR"])
def test_there_is_none_for_a_class_path_with_directories(
    spark: tuple[Java, Path], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "/etc")
    assert class_archive(*spark) is None


def test_there_is_none_without_a_cache_directory(spark: tuple[Java, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", os.devnull)
    assert class_archive(*spark) is None


def test_there_is_none_for_a_java_that_keeps_not_even_its_own_classes(spark: tuple[Java, Path]) -> None:
    (spark[0].home / "lib" / "server" / "classes.jsa").unlink()
    assert class_archive(*spark) is None
