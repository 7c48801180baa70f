"""The commands. Each reads its options and runs its program.

nsqd, nsqlookupd, nsqadmin  the daemons
tools                       nsq-tail, nsq-cat, nsq-stat, nsq-to-file, nsq-to-http, nsq-to-nsq, to-nsq, spark-replay
manual                      prints reference pages
__main__                    runs any of these in a checkout
contrib                     lists the files for administrators that are installed
"""
