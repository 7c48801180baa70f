"""nsq-cat: shows the messages in files: archives of nsq-to-file, and logs of nsqd.

options   the settings
reading   the messages of a file in batches, and its damage; writing them
"""
