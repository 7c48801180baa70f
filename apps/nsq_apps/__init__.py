"""The commands, a module for each. It reads its options, checks them and runs its program.

Daemons
nsqd, nsqlookupd, nsqadmin

Tools
nsq_cat, nsq_stat, nsq_tail, nsq_to_file, nsq_to_http, nsq_to_nsq, nsq_worker, to_nsq, spark_compact, spark_replay

What they share
starting   the start and the end of every daemon and tool
manual     prints reference pages
man_pages  makes the pages of `man`
alerts     makes the alerts of Prometheus
__main__   runs any of these in a checkout
contrib    lists the files for administrators that are installed
"""
