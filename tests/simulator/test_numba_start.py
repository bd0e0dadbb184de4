"""numba starts without SciPy, and still has its linear algebra."""

import subprocess
import sys

SCRIPT = """
import sys
from simulator.compiled.numba_start import spare_scipy
spare_scipy()
spare_scipy()
import numpy as np
from numba import njit
import numba.np.linalg as linalg
known = linalg.ensure_blas
assert njit(lambda x: x.sum())(np.ones(4)) == 4.0
assert "numba.np.arraymath" in sys.modules and "scipy.linalg" not in sys.modules
assert linalg.ensure_blas is known
assert njit(lambda a: np.dot(a, a))(np.eye(3)).tolist() == np.eye(3).tolist()
assert "scipy.linalg" in sys.modules
assert not any(type(finder).__name__ == "_Finder" for finder in sys.meta_path)
"""


def test_scipy_is_loaded_for_linear_algebra_alone():
    subprocess.run([sys.executable, "-c", SCRIPT], check=True, timeout=120)
