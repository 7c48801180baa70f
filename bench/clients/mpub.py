"""The load `mpub` as a program: `python -m bench.clients.mpub`.

It says `ready`, and for each line `ARCHIVE PORT MESSAGES` that it reads, publishes so many messages to the port and
says how many nsqd acknowledged. The archive is for others, who are measured in the same way.
"""

import sys

from bench.loads.mpub import MESSAGES_PER_MPUB, mpub_pipeline


def main() -> None:
    print("ready", flush=True)
    for line in sys.stdin:
        _, port, messages = line.split()
        pipeline = mpub_pipeline(int(port))
        commands = pipeline.send(commands=int(messages) // MESSAGES_PER_MPUB)
        print(commands * MESSAGES_PER_MPUB, flush=True)
        pipeline.close()


if __name__ == "__main__":
    main()
