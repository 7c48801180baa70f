"""The servers that publishes are measured with: nsqd-py, and those it is compared with.

protocol     what a publisher needs of a server's protocol
programs     a peer that is not of the NSQ family: one program on one port
nsqd         nsqd-py and Go's nsqd
redis, jetstream, beanstalkd, rabbitmq   a file and a class for each
limit        the same system calls with no queue
standby      an nsqd of ours with a standby
bare_server  the program of the limit
setups       a server with the flags that make it keep one promise: the columns of the tables
"""
