"""Files moved, copied or linked to OUT/sorted/CLASS, and taken back, by a signed journal."""
