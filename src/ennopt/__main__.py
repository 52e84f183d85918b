"""``python -m ennopt``, and the command ``ennopt``."""

import sys


def main() -> int:
    """Run the command line; Ctrl-C while it is loaded gives a line, no traceback."""
    try:
        from ennopt.cli import main as run
    except KeyboardInterrupt:
        print("ennopt: interrupted", file=sys.stderr)
        return 130
    return run()


if __name__ == "__main__":
    sys.exit(main())
