"""Which packages are installed, and from which folders. Everything else is in setup.cfg.

The folders at the top of the repository are named for its readers. Installed packages must not be called `tools` or
`apps`: half the projects in the world have folders of these names.
"""

import os
import shutil
from pathlib import Path
from typing import Any

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

FOLDERS = {
    ".": ["nsqd_py*", "nsqlookupd_py*", "nsqadmin_py*"],
    "apps": ["nsq_apps*"],
    "tools": ["nsq_tools*"],
    "spark": ["nsq_spark*", "pyspark_nsq*"],
}
# Data files that administrators need: `python -m nsq_apps.contrib` shows them.
CONTRIB_FOLDERS = ("grafana", "integrations", "prometheus", "systemd")
CONTRIB = {f"nsqd_py.contrib.{folder}": f"contrib/{folder}" for folder in CONTRIB_FOLDERS}
# Where `man` looks for them: in a virtual environment too, if its bin is on PATH.
MAN_PAGES = (
    "share/man/man1",
    [f"contrib/man/{path.name}" for path in sorted(Path("contrib/man").glob("*.1"))],
)
# The modules that a message passes. NSQD_COMPILED=1 has mypyc compile them, from the same source: the wheel then fits one
# version of Python and one platform. The default is the wheel without compiled code, which fits all.
COMPILED = {
    "nsqd_py/api": "publishing",
    "nsqd_py/diskqueue": "log memory_budget records",
    "nsqd_py/diskqueue/files": "log_file open_files",
    "nsqd_py/diskqueue/journals": "ranges",
    "nsqd_py/net": "loop_iteration transport",
    "nsqd_py/net/http": "connection",
    "nsqd_py/pqueues": "alarms deferred in_flight",
    "nsqd_py/protocol": "batch commands frames message_ids multi_body parser",
    "nsqd_py/queue": "channel delivery journaled_position latency position publish_buffer topic",
    "nsqd_py/queue/reading": "batch_cache lookahead message_reader unreadable",
    "nsqd_py/tcp": "client connection fast_publishing",
    "nsqlookupd_py": "connection http",
}


def compiled_modules() -> dict[str, Any]:
    """Return the arguments of setup() for the modules to compile, and for what compiles them; none without NSQD_COMPILED."""
    if os.environ.get("NSQD_COMPILED", "0") in ("", "0"):
        return {}
    needed = ["mypy[mypyc]>=2.4"]
    try:
        from mypyc.build import mypycify
    except ImportError:  # before pip has installed it
        return {"setup_requires": needed}
    # Without setup.cfg: its strictness needs the types of all packages, and an isolated build has few of them.
    options = ["--config-file=", "--ignore-missing-imports"]
    paths = [f"{folder}/{name}.py" for folder, names in COMPILED.items() for name in names.split()]
    return {
        "setup_requires": needed,
        "ext_modules": mypycify(options + paths, group_name="nsqd_py", opt_level="3", debug_level="1"),
    }


class BuildWithPage(build_py):
    """Adds nsqadmin's page in few files, which contrib/page/build.mjs has made in the folder that NSQADMIN_PAGE names."""

    def run(self) -> None:
        super().run()
        merged = os.environ.get("NSQADMIN_PAGE", "")
        target = Path(self.build_lib) / "nsqadmin_py" / "page"
        shutil.rmtree(target, ignore_errors=True)
        if merged:
            shutil.copytree(merged, target)


packages = {folder: find_packages(folder, include=names) for folder, names in FOLDERS.items()}


def folders_of_packages() -> dict[str, str]:
    """Return the folder of each top-level package that is not at the top of the repository."""
    found = {}
    for folder, names in packages.items():
        if folder != ".":
            found |= {name: f"{folder}/{name}" for name in names if "." not in name}
    return found


setup(
    packages=[name for names in packages.values() for name in names] + list(CONTRIB),
    package_dir=folders_of_packages() | CONTRIB,
    data_files=[MAN_PAGES],
    cmdclass={"build_py": BuildWithPage},
    **compiled_modules(),
)
