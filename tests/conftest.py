"""Before any test: torch works with one thread, for the tests themselves run side by side on all cores."""

from __future__ import annotations

import os

# read by torch as it is imported, here and in the commands that tests run
os.environ.setdefault("OMP_NUM_THREADS", "1")
