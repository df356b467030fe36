"""Cholesky factors and inverses in place, with the interpreter's lock released.

`scipy.linalg.lapack` holds the lock while it works, so threads that factor matrices wait for each other: two of them
were no faster than one. SciPy offers the same routines of LAPACK and BLAS to Cython, and ctypes, which can call those,
releases the lock. Of a symmetric matrix only the lower triangle is read and written.
"""

from __future__ import annotations

import ctypes
import sys
from types import ModuleType

import numpy as np
from numpy.typing import NDArray
from scipy import LowLevelCallable
from scipy.linalg import cython_blas, cython_lapack

from metricdp._validation import FloatArray

__all__ = ["cholesky", "cholesky_banded", "invert_all", "invert_factor", "multiply_all", "solve", "solve_banded"]

# 64 bits serve builds of LAPACK with integers of 32 bits too where the lower half is stored first.
_Integer = ctypes.c_int64 if sys.byteorder == "little" else ctypes.c_int


_capsule_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


class _Routine:
    """A Fortran routine, whose arguments are all pointers."""

    def __init__(self, module: ModuleType, name: str) -> None:
        found = LowLevelCallable.from_cython(module, name)
        address = _capsule_pointer(found.function, found.signature.encode())
        prototype = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (found.signature.count(",") + 1))
        self.at_addresses = prototype(address)

    def __call__(self, *arguments: bytes | int | NDArray[np.floating]) -> bool:
        """Call the routine and return whether it succeeded, as its last argument, which is not given, says."""
        failed = _Integer(0)
        self.at_addresses(*map(_pointer, arguments), ctypes.byref(failed))
        return failed.value == 0


def _pointer(argument: bytes | int | NDArray[np.floating]) -> object:
    if isinstance(argument, np.ndarray):
        return argument.ctypes.data
    return ctypes.byref(_Integer(argument)) if isinstance(argument, int) else argument


_POTRF = {4: _Routine(cython_lapack, "spotrf"), 8: _Routine(cython_lapack, "dpotrf")}
_POTRI = {4: _Routine(cython_lapack, "spotri"), 8: _Routine(cython_lapack, "dpotri")}
_POTRS, _PBTRF, _PBTRS = (_Routine(cython_lapack, name) for name in ("dpotrs", "dpbtrf", "dpbtrs"))
_SYMV = _Routine(cython_blas, "dsymv")

# The lower triangle of a matrix that is stored by columns is Fortran's lower one, by rows it is the upper one.
_BY_COLUMNS, _BY_ROWS = b"L", b"U"


def cholesky(matrix: NDArray[np.floating]) -> bool:
    """Replace a matrix by its Cholesky factor; return False if it is not positive definite."""
    size = len(matrix)
    return _POTRF[matrix.itemsize](_triangle(matrix), size, matrix, size)


def invert_factor(factor: NDArray[np.floating]) -> bool:
    """Replace a Cholesky factor by the inverse of its matrix; return whether there is one."""
    size = len(factor)
    return _POTRI[factor.itemsize](_triangle(factor), size, factor, size)


def solve(factor: FloatArray, right: FloatArray) -> FloatArray:
    """Return the solution for a right-hand side and a matrix whose Cholesky factor is given."""
    solution, size = right.copy(), len(factor)
    _POTRS(_triangle(factor), size, 1, factor, size, solution, size)
    return solution


def cholesky_banded(bands: FloatArray) -> bool:
    """Replace the bands (band + 1, n) of a matrix by those of its Cholesky factor; return whether there is one."""
    width, size = bands.shape
    assert bands.flags.f_contiguous
    return _PBTRF(_BY_COLUMNS, size, width - 1, bands, width)


def solve_banded(factor: FloatArray, right: FloatArray) -> FloatArray:
    """Return the solution for a right-hand side and a matrix whose banded Cholesky factor is given."""
    solution, (width, size) = right.copy(), factor.shape
    assert factor.flags.f_contiguous
    _PBTRS(_BY_COLUMNS, size, width - 1, 1, factor, width, solution, size)
    return solution


def invert_all(matrices: FloatArray) -> bool:
    """Replace matrices (n, size, size), by rows, by their inverses; return False if one is not positive definite."""
    assert matrices.flags.c_contiguous
    failed, size = _Integer(0), ctypes.byref(_Integer(matrices.shape[1]))
    for matrix in _addresses(matrices):
        for routine in (_POTRF[8], _POTRI[8]):
            routine.at_addresses(_BY_ROWS, size, matrix, size, ctypes.byref(failed))
            if failed.value:
                return False
    return True


def multiply_all(matrices: FloatArray, vectors: FloatArray) -> FloatArray:
    """Return the products of matrices (n, size, size), by rows, and vectors (n, size)."""
    assert matrices.flags.c_contiguous
    assert vectors.flags.c_contiguous
    products = np.empty_like(vectors)
    size, step = ctypes.byref(_Integer(matrices.shape[1])), ctypes.byref(_Integer(1))
    one, zero = ctypes.byref(ctypes.c_double(1.0)), ctypes.byref(ctypes.c_double(0.0))
    for matrix, vector, product in zip(_addresses(matrices), _addresses(vectors), _addresses(products), strict=True):
        _SYMV.at_addresses(_BY_ROWS, size, one, matrix, size, vector, step, zero, product, step)
    return products


def _addresses(stack: FloatArray) -> range:
    """Return where the parts of a stack begin in memory."""
    first = stack.ctypes.data
    return range(first, first + stack.nbytes, stack.strides[0]) if len(stack) else range(0)


def _triangle(matrix: NDArray[np.floating]) -> bytes:
    """Return what Fortran, which reads by columns, calls the lower triangle of a matrix."""
    assert matrix.flags.forc
    return _BY_COLUMNS if matrix.flags.f_contiguous else _BY_ROWS
