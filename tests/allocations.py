"""Counts how often this thread asks Python for memory, so that a test of cost needs no clock.

`sys.getallocatedblocks` tells what is left in the end; this also counts what was given back before.
"""

from __future__ import annotations

from collections.abc import Callable

from compiled_counters import compiled_counter

__all__ = ["allocations"]

# Two of Python's three allocators: of memory that objects own, and of objects. The third is used without the GIL.
_COUNTER = r"""
#include <stddef.h>

typedef struct {
    void *context;
    void *(*malloc)(void *, size_t);
    void *(*calloc)(void *, size_t, size_t);
    void *(*realloc)(void *, void *, size_t);
    void (*free)(void *, void *);
} Allocator;
extern void PyMem_GetAllocator(int, Allocator *);
extern void PyMem_SetAllocator(int, Allocator *);

static Allocator own[3];
static __thread int counting;
static __thread long made;

static void *counted_malloc(void *of, size_t size) {
    Allocator *to = of;
    made += counting;
    return to->malloc(to->context, size);
}
static void *counted_calloc(void *of, size_t count, size_t size) {
    Allocator *to = of;
    made += counting;
    return to->calloc(to->context, count, size);
}
static void *counted_realloc(void *of, void *old, size_t size) {
    Allocator *to = of;
    made += counting;
    return to->realloc(to->context, old, size);
}
static void uncounted_free(void *of, void *old) {
    Allocator *to = of;
    to->free(to->context, old);
}

void begin(void) {
    for (int domain = 1; domain < 3; domain++) {
        Allocator counted = {&own[domain], counted_malloc, counted_calloc, counted_realloc, uncounted_free};
        PyMem_GetAllocator(domain, &own[domain]);
        PyMem_SetAllocator(domain, &counted);
    }
    made = 0;
    counting = 1;
}
long end(void) {
    counting = 0;
    for (int domain = 1; domain < 3; domain++)
        PyMem_SetAllocator(domain, &own[domain]);
    return made;
}
"""


def allocations(action: Callable[[], object]) -> int:
    """How often it allocates memory, or has some made larger. What Python's free lists give again does not count."""
    counter = compiled_counter("allocation_counter", _COUNTER)
    counter.begin()
    try:
        action()
    finally:
        made = int(counter.end())
    return made
