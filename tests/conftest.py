"""One BLAS thread: the small matrices of the tests run up to 200 times slower when two threads
wait for a busy core. Must run before NumPy is loaded."""

import os

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")
