"""`order.sort_columns` by NumPy. Imported only where numpy is installed."""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np
import numpy.typing as npt


def sort_by_numpy(seqs: array[int], values: array[int]) -> tuple[array[int], array[int]]:
    """Both columns by seq, ascending; of a seq that is there twice the last value."""
    by_arrival: npt.NDArray[np.uint64] = np.frombuffer(seqs, np.uint64)
    order = np.argsort(by_arrival, kind="stable")
    ascending = by_arrival[order]
    last = np.append(ascending[1:] != ascending[:-1], True)
    return _array(ascending[last]), _array(np.frombuffer(values, np.uint64)[order[last]])


def _array(numbers: npt.NDArray[Any]) -> array[int]:
    found = array("Q")
    found.frombytes(numbers.tobytes())
    return found
