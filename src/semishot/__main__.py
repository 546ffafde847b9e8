"""`python -m semishot` and the command `semishot`, which begins here: Ctrl-C is heard from the start."""

import os

try:
    from semishot.commands.main import main
except KeyboardInterrupt:
    os.write(2, b"semishot: interrupted\n")
    os._exit(130)

if __name__ == "__main__":
    main()
