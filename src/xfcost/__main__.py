"""`python -m xfcost`, and the console script: an interrupt ends it quietly from its first import on."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line."""
    try:
        from xfcost.cli import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
