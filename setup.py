"""Which packages are installed, and from which folders. Everything else is in setup.cfg.

The folders at the top of the repository are named for its readers. Installed packages must not be called `tools` or
`apps`: half the projects in the world have folders of these names.
"""

from setuptools import find_packages, setup

FOLDERS = {
    ".": ["nsqd_py*", "nsqlookupd_py*", "nsqadmin_py*"],
    "apps": ["nsq_apps*"],
    "tools": ["nsq_tools*"],
    "spark": ["nsq_spark*", "pyspark_nsq*"],
}
# Data files that administrators need: `python -m nsq_apps.contrib` shows them.
CONTRIB_FOLDERS = ("grafana", "integrations", "prometheus", "systemd")
CONTRIB = {f"nsqd_py.contrib.{folder}": f"contrib/{folder}" for folder in CONTRIB_FOLDERS}

packages = {folder: find_packages(folder, include=names) for folder, names in FOLDERS.items()}
setup(
    packages=[name for names in packages.values() for name in names] + list(CONTRIB),
    package_dir={
        name: f"{folder}/{name}" for folder, names in packages.items() for name in names if folder != "." and "." not in name
    }
    | CONTRIB,
)
