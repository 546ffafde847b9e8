"""Files that appear whole, locks, JSON -> typed structs, tensors and tables, devices, progress."""
