"""Knows nothing of images or models. Only it opens files; locks, signing, names, devices, progress.

No other room opens a path: see "One door" in docs/design.md, and tests/promises/test_one_door.py.
Looking at a name (stat, exists, iterdir) may be done anywhere, with lstat by whoever then writes, moves or
deletes; what is opened here is checked again on the open file.
"""
