"""Counts how often compiled modules give up the GIL in this thread, so that a test of cost needs no clock.

Whoever gives it up takes it again: beside a busy thread that is a wait of up to `sys.getswitchinterval()`. Counted are
the calls of `PyEval_SaveThread` of each module that is loaded, but for the interpreter's own: it has no table of
functions of others that could be changed. Linux only.
"""

from __future__ import annotations

import gc
from collections.abc import Callable

from compiled_counters import compiled_counter

__all__ = ["gil_takes"]

_COUNTER = r"""
#define _GNU_SOURCE
#include <link.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

extern void *PyEval_SaveThread(void);
static __thread int counting;
static __thread long made;
static long changed;

static void *counted(void) {
    made += counting;
    return PyEval_SaveThread();
}

// What a module's table has of that function: also where the table was made unwritable.
static void change(ElfW(Addr) base, const ElfW(Rela) *rows, size_t bytes, const ElfW(Sym) *symbols, const char *names) {
    for (size_t n = 0; n < bytes / sizeof *rows; n++) {
        const ElfW(Sym) *symbol = &symbols[ELF64_R_SYM(rows[n].r_info)];
        void **place = (void **)(base + rows[n].r_offset);
        if (!ELF64_R_SYM(rows[n].r_info) || strcmp(names + symbol->st_name, "PyEval_SaveThread") || *place == counted)
            continue;
        uintptr_t size = sysconf(_SC_PAGESIZE), page = (uintptr_t)place / size * size;
        if (!mprotect((void *)page, size, PROT_READ | PROT_WRITE)) {
            *place = counted;
            changed++;
        }
    }
}

static int look(struct dl_phdr_info *module, size_t size, void *own) {
    const char *names = 0;
    const ElfW(Sym) *symbols = 0;
    const ElfW(Rela) *rows = 0, *calls = 0;
    size_t of_rows = 0, of_calls = 0;
    (void)size;
    if (!*module->dlpi_name || strstr(module->dlpi_name, "libpython") || strstr(module->dlpi_name, own))
        return 0;
    for (int n = 0; n < module->dlpi_phnum; n++)
        if (module->dlpi_phdr[n].p_type == PT_DYNAMIC)
            for (ElfW(Dyn) *each = (void *)(module->dlpi_addr + module->dlpi_phdr[n].p_vaddr); each->d_tag; each++) {
                ElfW(Addr) at = each->d_un.d_ptr < module->dlpi_addr ? module->dlpi_addr + each->d_un.d_ptr
                                                                     : each->d_un.d_ptr;
                switch (each->d_tag) {
                case DT_STRTAB: names = (void *)at; break;
                case DT_SYMTAB: symbols = (void *)at; break;
                case DT_RELA: rows = (void *)at; break;
                case DT_JMPREL: calls = (void *)at; break;
                case DT_RELASZ: of_rows = each->d_un.d_val; break;
                case DT_PLTRELSZ: of_calls = each->d_un.d_val; break;
                }
            }
    if (names && symbols && rows)
        change(module->dlpi_addr, rows, of_rows, symbols, names);
    if (names && symbols && calls)
        change(module->dlpi_addr, calls, of_calls, symbols, names);
    return 0;
}

long begin(void) {
    dl_iterate_phdr(look, "gil_counter.so");
    made = 0;
    counting = 1;
    return changed;
}
long end(void) {
    counting = 0;
    return made;
}
"""


def gil_takes(action: Callable[[], object]) -> int:
    """How often the modules that are loaded give up the GIL in it. The garbage that others left is not collected
    meanwhile: its finalizers may give it up.
    """
    counter = compiled_counter("gil_counter", _COUNTER)
    collects = gc.isenabled()
    gc.disable()
    try:
        assert counter.begin() > 0, "no module calls PyEval_SaveThread: nothing would be counted"
        action()
    finally:
        made = int(counter.end())
        if collects:
            gc.enable()
    return made
