complete -c spark-replay -l version -d 'Print the version and exit.'
complete -c spark-replay -l config -d 'Config file: TOML, or YAML if its name ends in .yaml or .yml.' -r -F
complete -c spark-replay -l completion -d 'Print the completion script for a shell (bash, zsh, fish) and exit.' -x -a 'bash zsh fish'
complete -c spark-replay -l check-config -d 'Check the flags, the config file and the files that they name, without a start: status 0 if the program would start with them, 2 if not.'
complete -c spark-replay -l print-config -d 'Check them, print all settings in effect as a config file (TOML), and exit. Passwords and tokens are shown as ***.'
complete -c spark-replay -l archive -d 'File, directory or glob to read, also as a plain word (may be given several times): archives of nsq-to-file and of Go\'s nsq_to_file, data directories of nsqd. URLs such as s3a://bucket/dir and hdfs:// are read with the settings that --conf gives.' -x
complete -c spark-replay -l format -d 'Format of all files, instead of recognising it: lines, jsonl, framed, parquet, topic_log, go_queue.' -x -a 'lines jsonl framed parquet topic_log go_queue'
complete -c spark-replay -l default-topic -d 'Topic of files that do not contain it (lines).' -x
complete -c spark-replay -l topic-from-name -d 'Regular expression with a group (?P<topic>...) that finds the topic in the path of such files.' -x
complete -c spark-replay -l unread-only -d 'In Go\'s data directories, read only messages that were not consumed yet.'
complete -c spark-replay -l go-channel -d 'In Go\'s data directories, read this channel of each topic, or `all` channels, which hold the same messages.' -x
complete -c spark-replay -l file-time-zone -d 'Time zone of the hours in the names of files without timestamps (lines): --start and --end select whole files.' -x
complete -c spark-replay -l skip-damaged -d 'Pass over damaged records, and count them by file; otherwise damage ends the replay.'
complete -c spark-replay -l topic -d 'Topic to send (may be given several times); all by default.' -x
complete -c spark-replay -l topic-pattern -d 'Also send topics that match this regular expression (RE2).' -x
complete -c spark-replay -l start -d 'Send messages that were published at this time or later: RFC 3339 (UTC without an offset), a number of s, ms or ns since the epoch, or an age (-2h, -1d12h).' -x
complete -c spark-replay -l end -d 'Send messages that were published before this time.' -x
complete -c spark-replay -l where -d 'Send messages for which this predicate of Spark SQL is true: over the columns topic, channel, timestamp, timestamp_ns, id, attempts, body, nsqd, file, position and, where bodies are JSON, json.field. A field is a number beside numbers and a text beside texts; a value that does not fit is null.' -x
complete -c spark-replay -l json-schema -d 'Types of the fields that --where names, as Spark SQL writes them: \'n BIGINT, user STRUCT<name: STRING>\'.' -x
complete -c spark-replay -l grep -d 'Send messages whose body matches this regular expression (RE2).' -x
complete -c spark-replay -l sample -d 'Send this share of the messages, such as 0.01 or 1%; it is always the same messages.' -x
complete -c spark-replay -l limit -d 'Send only the first messages, up to this number.' -x
complete -c spark-replay -l dedupe -d 'Send one of the messages with the same topic and id (id), or with the same topic and body (body).' -x -a 'id body'
complete -c spark-replay -l nsqd-tcp-address -d 'TCP address (host:port) of an nsqd to publish to (may be given several times: messages are spread over them, and go to another one when one fails).' -x
complete -c spark-replay -l lookupd-http-address -d 'HTTP address (host:port) of an nsqlookupd whose nsqds are published to (may be given several times).' -x
complete -c spark-replay -l topic-map -d 'old=new: publish the messages of a topic to another one (may be given several times).' -x
complete -c spark-replay -l to-topic -d 'Publish all other messages to this topic.' -x
complete -c spark-replay -l defer -d 'Delay after which nsqd delivers a message.' -x
complete -c spark-replay -l batch-bytes -d 'Largest number of bytes of messages in one command.' -x
complete -c spark-replay -l producer-opt -d 'Option of the producer as name,value with the names of go-nsq\'s Config, such as tls_v1,true or auth_secret,... (may be given several times).' -x
complete -c spark-replay -l rate -d 'Largest number of messages to publish a second, over all tasks.' -x
complete -c spark-replay -l speed -d 'Keep the gaps of the archive (original), or make them shorter (2x, 10x) or longer (0.5x); max ignores them.' -x
complete -c spark-replay -l order -d 'time: each topic in the order in which it was published; none: the order that is fastest.' -x -a 'none time'
complete -c spark-replay -l dry-run -d 'Publish nothing: show the number of messages by topic and time, and the first messages.'
complete -c spark-replay -l allow-empty -d 'Exit with status 0 if no message matches, instead of 1.'
complete -c spark-replay -l yes -d 'Start without asking.'
complete -c spark-replay -l checkpoint -d 'Directory that keeps what nsqd acknowledged, so that the same command resumes after a kill or a failure. All executors must see it.' -x
complete -c spark-replay -l give-up-after -d 'How long to retry, with growing pauses, while no nsqd takes a message.' -x
complete -c spark-replay -l report -d 'File for a report in JSON; - is standard output.' -x
complete -c spark-replay -l master -d 'URL of the Spark master: local[4], local-cluster[2,1,1024], spark://host:7077, yarn, k8s://...' -x
complete -c spark-replay -l conf -d 'Setting of Spark as name=value (may be given several times).' -x
complete -c spark-replay -l parallelism -d 'Number of tasks that run at the same time.' -x
complete -c spark-replay -l help -d 'Show what the flags mean and exit.'
