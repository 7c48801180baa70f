"""A warm standby: another nsqd that follows the logs of this one, and replaces it when it is promoted.

options       the settings of standbys and backups
part          when the parts of nsqd begin and end that a standby, a primary and the lease are
messages      the proof of membership, and what a primary and its standby say to each other   pure
group         the group's secret, certificates and addresses; connections without a proof yet
link          a connection to another nsqd of the group
primary       the standbys of a primary
stream        sends one standby or backup the rounds of a feed
acks          the nsqds that have every acknowledged message, and may take the lease          pure
follower      a standby's connection to its primary
copies        a standby's copy of the primary's files: written, checked, and what leaves it is set aside
repairs       what another nsqd of the group has and this one lacks: asked for, fetched, written back
role          what a standby answers; its promotion; fencing of the old primary
election      a lease decides who is the primary
"""
