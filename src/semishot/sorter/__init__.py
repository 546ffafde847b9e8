"""A person's own images: listing, encoders, embedding, classify, predict, sorted files, export."""
