"""nsq-tail: shows the messages of topics as they arrive.

options      the settings
json_text    JSON in one line or in many; values from JSON bodies by paths such as `.user.tags[0]`   pure
template     templates of `--format`                                                                 pure
rendering    messages become the bytes to show; escaping for terminals                               pure
tailing      consuming, writing, finishing
log_tailing  reading logs over HTTP, for --since and --last
"""
