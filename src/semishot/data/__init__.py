"""Images without torch: the pool, image sources, decoding, framing, splits, episodes, safe pickles."""
