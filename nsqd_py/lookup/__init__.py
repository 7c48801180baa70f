"""nsqd's side of nsqlookupd: registers topics and channels, and asks for the channels of a new topic.

on_demand      imports the rest with the first address
peers          all nsqlookupds: one peer for each endpoint
peer           one nsqlookupd: connects, registers, and tells what changes
connection     its TCP connection
identity       both sides of IDENTIFY
registrations  the keys to register, and the changes not reported yet           pure
host           a configured address, and the endpoints behind its name
endpoints      addresses as they are configured                                pure
resolver       resolves names, in threads
query          asks one nsqlookupd for the channels of a topic
precreation    makes the channels of a new topic before its first message is released
tls            TLS to nsqlookupds
"""
