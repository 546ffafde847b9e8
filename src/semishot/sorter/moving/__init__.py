"""Files moved, copied or linked to OUT/sorted/CLASS, and taken back, by the journal OUT/undo.json."""
