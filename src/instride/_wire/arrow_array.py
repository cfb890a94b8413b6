# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Buffers as an array of Arrow's C data interface: one hand-over a batch, where pyarrow's own way gives up the GIL
seventeen times. Compiled to C by Cython; there is no other form, since `arrow` does without.

Laws
1. Each array owns its children and a reference to its buffers, and frees both when it is released (once).
2. What is exported is imported, or discarded.
"""

from __future__ import annotations

from instride._wire.compiled import require_compiled

try:
    import cython
except ImportError:
    require_compiled(__name__, compiled=False)
    raise
if cython.compiled:
    from cython.cimports.cpython.ref import Py_DECREF, Py_INCREF, PyObject
    from cython.cimports.libc.stdint import uintptr_t
    from cython.cimports.libc.stdlib import calloc, free

__all__ = ["COMPILED", "discard", "export"]

COMPILED: bool = cython.compiled
require_compiled(__name__, compiled=COMPILED)

# What an empty buffer points to.
_NOTHING = b"\0" * 64


@cython.cfunc
@cython.exceptval(check=False)
def _free_children(array: cython.pointer(ArrowArray)) -> cython.void:
    n: cython.Py_ssize_t
    for n in range(array.n_children):
        if array.children[n] != cython.NULL:
            if array.children[n].release != cython.NULL:
                array.children[n].release(array.children[n])
            free(array.children[n])
    free(array.children)
    free(array.buffers)
    if array.dictionary != cython.NULL:
        if array.dictionary.release != cython.NULL:
            array.dictionary.release(array.dictionary)
        free(array.dictionary)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _release(array: cython.pointer(ArrowArray)) -> cython.void:
    """Of any thread; once Python has ended nothing is freed."""
    if Py_IsInitialized():
        _release_here(array)
    else:
        array.release = cython.NULL


@cython.cfunc
@cython.with_gil
@cython.exceptval(check=False)
def _release_here(array: cython.pointer(ArrowArray)) -> cython.void:
    kept: cython.pointer(PyObject) = cython.cast(cython.pointer(PyObject), array.private_data)
    array.release = cython.NULL
    _free_children(array)
    if kept != cython.NULL:
        Py_DECREF(cython.cast(object, kept))


@cython.cfunc
def _fill(array: cython.pointer(ArrowArray), node: tuple) -> object:
    """array: zeroed. Whatever this raises, the array can be released."""
    buffers: tuple = node[1]
    children: tuple = node[2]
    view: cython.const[cython.uchar][::1]
    n: cython.Py_ssize_t
    array.release = _release
    Py_INCREF(buffers)
    array.private_data = cython.cast(cython.p_void, cython.cast(cython.pointer(PyObject), buffers))
    array.length = node[0]
    # -1: pyarrow counts when somebody asks. Counting here would go over each bit for nobody.
    array.null_count = -1 if buffers[0] is not None else 0
    array.buffers = cython.cast(
        cython.pointer(cython.pointer(cython.const[cython.void])),
        calloc(len(buffers) + 1, cython.sizeof(cython.p_void)),
    )
    array.children = cython.cast(
        cython.pointer(cython.pointer(ArrowArray)), calloc(len(children) + 1, cython.sizeof(cython.p_void))
    )
    if array.buffers == cython.NULL or array.children == cython.NULL:
        raise MemoryError("no memory for an Arrow array")
    for n in range(len(buffers)):
        if buffers[n] is not None:
            # The address outlives this view: `private_data` keeps the buffers, and nobody resizes them.
            view = buffers[n] if len(buffers[n]) else _NOTHING
            array.buffers[n] = cython.address(view[0])
    # The counts before the children: where one of them fails, those that are there are freed.
    array.n_buffers = len(buffers)
    array.n_children = len(children)
    for n in range(len(children)):
        array.children[n] = cython.cast(cython.pointer(ArrowArray), calloc(1, cython.sizeof(ArrowArray)))
        if array.children[n] == cython.NULL:
            raise MemoryError("no memory for an Arrow array")
        _fill(array.children[n], children[n])
    if node[3] is not None:
        array.dictionary = cython.cast(cython.pointer(ArrowArray), calloc(1, cython.sizeof(ArrowArray)))
        if array.dictionary == cython.NULL:
            raise MemoryError("no memory for an Arrow array")
        _fill(array.dictionary, node[3])
    return None


def export(node: tuple) -> int:
    """See `arrow_array.pyi`."""
    array: cython.pointer(ArrowArray) = cython.cast(cython.pointer(ArrowArray), calloc(1, cython.sizeof(ArrowArray)))
    if array == cython.NULL:
        raise MemoryError("no memory for an Arrow array")
    try:
        _fill(array, node)
    except BaseException:
        discard(cython.cast(uintptr_t, array))
        raise
    return cython.cast(uintptr_t, array)


def discard(address: uintptr_t) -> None:
    """See `arrow_array.pyi`."""
    array: cython.pointer(ArrowArray) = cython.cast(cython.pointer(ArrowArray), address)
    if array.release != cython.NULL:
        array.release(array)
    free(array)
