"""A program that prints its switch interval."""

import sys


def main() -> None:
    print(sys.getswitchinterval(), flush=True)


if __name__ == "__main__":
    main()
