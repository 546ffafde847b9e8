"""The one exception that means: the input is wrong, and the message says how to mend it."""


class InputError(ValueError):
    """One clear line for the user: what is wrong, where, and what to do. The command exits with 2."""
