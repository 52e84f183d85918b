"""``python -m ennopt``."""

import sys

from ennopt.cli import main

if __name__ == "__main__":
    sys.exit(main())
