"""Encoders of images, by name, from a file or a saved model, and the runtimes that run them."""
