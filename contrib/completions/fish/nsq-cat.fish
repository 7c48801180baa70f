complete -c nsq-cat -l version -d 'Print the version and exit.'
complete -c nsq-cat -l config -d 'Config file: TOML, or YAML if its name ends in .yaml or .yml.' -r -F
complete -c nsq-cat -l completion -d 'Print the completion script for a shell (bash, zsh, fish) and exit.' -x -a 'bash zsh fish'
complete -c nsq-cat -l check-config -d 'Check the flags, the config file and the files that they name, without a start: status 0 if the program would start with them, 2 if not.'
complete -c nsq-cat -l print-config -d 'Check them, print all settings in effect as a config file (TOML), and exit. Passwords and tokens are shown as ***.'
complete -c nsq-cat -l files -d 'File to read; - is standard input. Formats are recognized: lines, jsonl, framed and parquet of nsq-to-file, also compressed with gzip or zstd, and the logs (*.log) in a data path of nsqd (may be given several times).' -x
complete -c nsq-cat -l n -d 'Number of messages to show; then the tool ends. 0 means no limit.' -x
complete -c nsq-cat -l print-topic -d 'Write the topic before each message: `topic | body`.'
complete -c nsq-cat -l grep -d 'Show only messages whose body matches this regular expression (RE2).' -x
complete -c nsq-cat -l pick -d 'Show a value of a JSON body, by a path such as .user.name, .tags[0] or .["a key"] (may be given several times: the values are written on one line, separated by tabs).' -x
complete -c nsq-cat -l json -d 'Format JSON: indented and coloured on a terminal, on one line in a pipe.'
complete -c nsq-cat -l format -d 'Text to write for each message, with {timestamp}, {timestamp_ns}, {id}, {attempts}, {topic}, {channel}, {nsqd}, {body}; \\t and \\n are a tab and a line feed.' -x
complete -c nsq-cat -l jsonl -d 'Write each message as a JSON object on one line, as nsq-to-file --format=jsonl does.'
complete -c nsq-cat -l help -d 'Show what the flags mean and exit.'
