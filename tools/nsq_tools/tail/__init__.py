"""nsq-tail: shows the messages of topics as they come.

What is pure:
pick        values out of JSON bodies, by paths as `.user.tags[0]`
json_text   JSON in one line or in many, coloured or not, its numbers and texts as they came
escaping    what a body may do to a terminal: nothing
template    `--format`
allowance   how many messages are still to be shown
rendering   columns of messages become the bytes to show, as the settings say

What consumes and writes:
options     the settings
output      writes without holding up the event loop
tailing     the consumers, and what is finished when
"""
