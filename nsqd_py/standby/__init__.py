"""A warm standby: another nsqd that follows the logs of this one, and takes its place when it is promoted.

membership  the handshake by which both sides prove that they belong to one group  pure
group       the group's secret, the names in its certificates, its addresses
door        connections that have not proven their membership yet
messages    what a primary and its standby say to each other               pure
primary     the standbys of a primary
stream      what one standby gets: what is new in files, in rounds
acks        publishers that wait for standbys                              pure
follower    a standby's connection to its primary
copy        a standby's copy of the primary's files
aside       what leaves the copy in the name of the primary is kept
unfinished  messages of the copy that some channel has not finished
state       `nsqd.standby`, which says that a data path is a copy
role        what a standby answers to clients and operators
promotion   makes a standby's data path that of a primary
fencing     keeps an old primary from serving
election    a lease decides who is the primary
backup      --backup-to and --restore-from
in_sync     the nsqds that have every acknowledged message: only they may take the lease
"""
