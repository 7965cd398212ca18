"""`python -m isocompute`."""

import sys

from isocompute.cli import main

if __name__ == "__main__":
    sys.exit(main())
