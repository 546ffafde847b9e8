"""Fit and predict a pile that lies on disk: `fit_pile.py FEATURES.npy LABELS.npy SECONDS.json REFINER`."""

import json
import resource
import sys
import time
from pathlib import Path

import numpy as np

from semishot import PrototypeClassifier

if __name__ == "__main__":
    features, labels = (np.load(path, mmap_mode="r") for path in sys.argv[1:3])
    begun, cpu = time.perf_counter(), time.process_time()
    classifier = PrototypeClassifier(sys.argv[4]).fit(features, labels)
    fitted, cpu = time.perf_counter(), time.process_time() - cpu
    classifier.predict_proba(features)
    seconds = {"fit_seconds": fitted - begun, "fit_cpu_seconds": cpu}
    seconds["predict_seconds"] = time.perf_counter() - fitted
    seconds["memory_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    Path(sys.argv[3]).write_text(json.dumps(seconds), encoding="utf-8")
