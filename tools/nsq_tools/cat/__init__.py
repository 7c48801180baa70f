"""nsq-cat: shows the messages in files: archives of nsq-to-file, and logs of nsqd.

options    the settings
program    its name, what it does, and examples
files      the files that names and directories lead to
noted      how many bytes finished files had, by the manifests of nsq-to-file
selection  the messages to show, by topic and time
stores     what is in a store of nsqd (`--store`), without nsqd
reading    the messages of a file in batches, and its damage; writing them
"""
