#!/usr/bin/env bash
# nsqlookupd, nsqd and nsqadmin together on this machine, on the default ports of 127.0.0.1, until Ctrl-C. `make run`
# calls it.
#
#   contrib/run-local.sh BIN DATA     BIN has the three programs; DATA keeps the messages, nsqadmin's history, and NAME.pid
#
# More flags for each: NSQLOOKUPD_FLAGS, NSQD_FLAGS, NSQADMIN_FLAGS. Where the other two find nsqlookupd:
# NSQLOOKUPD_TCP_ADDRESS, NSQLOOKUPD_HTTP_ADDRESS.
#
# A program that a signal ends (kill -9) is started again, as a service manager would do. Where one ends by itself,
# so do the others.
set -euo pipefail

bin=$1
data=$2
mkdir -p "$data"

asked=
turn=  # who is to end next
reported=  # who was asked to last; a second time means at once
tell() {
    reported=$1
    kill -TERM "$1" 2>/dev/null
}
trap 'asked=1; [ -z "$turn" ] || tell "$turn" || true' INT TERM

names=(nsqlookupd nsqd nsqadmin)
processes=()  # their ids
since=()      # when they were started, in seconds since this script began
start() {
    # A process group of its own: Ctrl-C comes to this script only, which passes it on to one after the other. Not for
    # the rest of the script: `wait` would return for a program that is stopped and goes on.
    set -m
    # nsqadmin asks the other two every two seconds: a line for each question would bury everything else.
    case ${names[$1]} in
        nsqlookupd)
            "$bin/nsqlookupd-py" --tcp-address=127.0.0.1:4160 --http-address=127.0.0.1:4161 \
                --broadcast-address=127.0.0.1 --log-level=warn ${NSQLOOKUPD_FLAGS:-} & ;;
        nsqd)
            "$bin/nsqd-py" --tcp-address=127.0.0.1:4150 --http-address=127.0.0.1:4151 \
                --broadcast-address=127.0.0.1 --log-level=warn --data-path="$data" \
                --lookupd-tcp-address="${NSQLOOKUPD_TCP_ADDRESS:-127.0.0.1:4160}" ${NSQD_FLAGS:-} & ;;
        nsqadmin)
            "$bin/nsqadmin-py" --http-address=127.0.0.1:4171 --history-file="$data/nsqadmin-history.db" \
                --lookupd-http-address="${NSQLOOKUPD_HTTP_ADDRESS:-127.0.0.1:4161}" ${NSQADMIN_FLAGS:-} & ;;
    esac
    set +m
    processes[$1]=$!
    echo $! > "$data/${names[$1]}.pid"
    since[$1]=$SECONDS
}

# Start those again that are gone. Fails for one that ran for less than two seconds: it would end again and again.
start_again() {
    local place
    for place in 0 1 2; do
        kill -0 "${processes[$place]}" 2>/dev/null && continue
        [ $((SECONDS - since[place])) -ge 2 ] || return 1
        echo "A signal ended ${names[$place]} (status $status); it is started again." >&2
        start "$place"
    done
    turn=${processes[2]}
}

for place in 0 1 2; do start "$place"; done
turn=${processes[2]}

# All serve until they are asked to stop, or one ends by itself.
status=0
while [ -z "$asked" ]; do
    status=0
    wait -n "${processes[@]}" 2>/dev/null || status=$?
    [ -z "$asked" ] && [ "$status" -gt 128 ] && start_again || break
done
ended=
# Not in the order in which they started: none is to miss another.
for place in 2 1 0; do
    turn=${processes[$place]}
    [ "$reported" = "$turn" ] || tell "$turn" || ended+=" ${names[$place]}"
    while kill -0 "$turn" 2>/dev/null; do wait "$turn" || true; done
done
for name in "${names[@]}"; do rm -f "$data/$name.pid"; done
[ -z "$asked" ] || exit 0
echo "Ended by itself:$ended (status $status); why is in its last lines above." >&2
echo "Where a port is taken, by another 'make run' perhaps, flags move it: NSQADMIN_FLAGS=--http-address=127.0.0.1:4172" >&2
exit "$status"
