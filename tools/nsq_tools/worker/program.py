"""The program nsq-worker: its name, what it does, and examples for `--help` and the reference page."""

from __future__ import annotations

from nsq_tools.worker.options import WorkerOptions
from nsqd_py.settings.program import Program

PROGRAM = Program(
    "nsq_worker",
    "nsq-worker",
    "Run the handlers of an app of nsqd_py.work in processes, and start each again that ends. SIGTERM or Ctrl-C finishes what "
    "runs; a second one returns it to nsqd. Other verbs check the app, call one handler, and list, show, replay or discard "
    "its dead letters.",
    WorkerOptions,
    examples=(
        (
            "Run an app in four processes",
            "nsq-worker shop.work:app --processes=4 --health-address=127.0.0.1:8080 --stop-timeout=45s",
            'run: until="runs as pid"',
        ),
        (
            "Restart at each change, while you write it",
            "nsq-worker shop.work:app --reload",
            'run: until="runs as pid"',
        ),
        ("Check names, types and addresses, as in CI", "nsq-worker check shop.work:app"),
        ("Call one handler in the shell", "echo '{\"id\": 1}' | nsq-worker run-once shop.work:app bill"),
        ("What has failed for good", "nsq-worker dead list shop.work:app"),
        ("Handle all of it again", "nsq-worker dead replay shop.work:app --all"),
    ),
    argument="app",
    exit_statuses=(
        (0, "stopped by a signal, or what was asked for is done"),
        (
            1,
            "the app cannot be imported, a consumer ended for good, a second signal came, or what was asked for failed",
        ),
        (
            2,
            "the command line or the config file is wrong; one line on standard error says how to correct it",
        ),
    ),
)
