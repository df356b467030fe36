"""`python -m metricdp` is the command `metricdp`."""

from metricdp.cli import main

main()
