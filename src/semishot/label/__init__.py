"""The page in which a person labels a pile: durable answers, judgements, the server, the page."""
