"""`python -m semishot` is the command `semishot`."""

from semishot.commands.main import main

main()
