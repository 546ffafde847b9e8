"""`PrototypeClassifier` over any features: scaling, blocks, strangers, what to label next."""
