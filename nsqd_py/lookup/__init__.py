"""nsqd's side of nsqlookupd: registers topics and channels, and asks for the channels of a new topic.

peers          all nsqlookupds: one peer for each endpoint; makes the channels of a new topic
peer           one nsqlookupd: connects, registers, reports changes, asks for the channels of a topic
connection     its TCP connection, with TLS, and both sides of IDENTIFY
host           a configured address and its endpoints; resolves names in threads
"""
