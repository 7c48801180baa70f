"""nsqlookupd tells consumers which nsqds have a topic. nsqds register over TCP; clients ask over HTTP.

daemon      the process
options     its settings
registry    which nsqd has which topics and channels                        pure
limits      limits on what nsqds and clients can register                   pure
peer        a registered nsqd, and the cached answers about nsqds           pure
parser      the commands of the TCP protocol                                pure
connection  the connection of one nsqd
commands    the handler of each command
names       long lists of names, sorted and encoded in steps                pure
http        the HTTP paths
"""
