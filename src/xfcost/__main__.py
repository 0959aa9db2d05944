"""`python -m xfcost`, and the console script: an interrupt ends it quietly from its first import on."""

from __future__ import annotations

from xfcost.report.interrupts import end_on_interrupt


def main() -> None:
    """Run the command line."""
    end_on_interrupt()
    from xfcost.cli import main as run

    run()


if __name__ == "__main__":
    main()
