"""to-nsq: publishes what comes from standard input, a message a record.

What is pure:
records     bytes in any chunking become batches of records, each with the number of its line
delimiter   the byte between two records, as it is given
rate        how many messages may leave now
limits      how large a message or an MPUB may be: learned from what nsqd refuses; batches are cut to fit
progress    the line that a terminal shows

What reads, sends and shows:
options      the settings
reading      chunks of standard input, without holding up the event loop
destination  one nsqd: what is on its way to it, what is tried again
bar          the progress on a terminal
publishing   from the first byte to the summary
"""
