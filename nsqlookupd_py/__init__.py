"""nsqlookupd: tells consumers which nsqd has which topics and channels. nsqds register over TCP; anyone asks over HTTP.

daemon      the process
options     its settings
registry    which nsqd has what                                             pure
room        bounds what nsqds and clients can register                      pure
peer        a registered nsqd                                               pure
parser      the commands of the TCP protocol                                pure
connection  the connection of one nsqd
commands    the handler of each command
names       long lists of names, sorted and encoded in steps                pure
http        the HTTP paths
"""
