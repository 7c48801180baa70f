"""nsqlookupd tells consumers which nsqds have a topic. nsqds register over TCP; clients ask over HTTP.

daemon      the process
options     its settings
registry    which nsqd has which topics and channels, and the limits       pure
protocol    the commands of the TCP protocol, and the peers that send them  pure
connection  the connection of one nsqd
http        the HTTP paths
"""
