"""`python -m xfcost`."""

from xfcost.cli import main

main()
