"""Fit and predict a pile that lies on disk: `fit_pile.py FEATURES.npy LABELS.npy SECONDS.json`."""

import json
import sys
import time
from pathlib import Path

import numpy as np

from semishot import PrototypeClassifier

if __name__ == "__main__":
    features, labels = (np.load(path, mmap_mode="r") for path in sys.argv[1:3])
    begun = time.perf_counter()
    classifier = PrototypeClassifier().fit(features, labels)
    fitted = time.perf_counter()
    classifier.predict_proba(features)
    seconds = {"fit_seconds": fitted - begun, "predict_seconds": time.perf_counter() - fitted}
    Path(sys.argv[3]).write_text(json.dumps(seconds), encoding="utf-8")
