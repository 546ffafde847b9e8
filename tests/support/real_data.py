"""Real data for tests that need some: beside the project, or where $SEMISHOT_REAL_DATA says."""

import os
from pathlib import Path

REAL_DATA = Path(
    os.environ.get("SEMISHOT_REAL_DATA") or Path(__file__).parents[3] / "shared" / "data"
)
