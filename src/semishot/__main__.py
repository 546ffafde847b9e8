"""`python -m semishot` is the command `semishot`."""

from semishot.cli import main

main()
