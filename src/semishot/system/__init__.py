"""Knows nothing of images or models: whole files, locks, signing, names, tensor files, devices, progress."""
