"""Waits for sockets, and receives whole frames meanwhile: the compiled form, or the plain one for debugging."""

from __future__ import annotations

from typing import TYPE_CHECKING

from instride._net.compiled_pump import COMPILED

__all__ = ["COMPILED", "Line", "Pump", "Waker", "receive", "send"]

if TYPE_CHECKING or COMPILED:
    from instride._net.compiled_pump import Line, Pump, Waker, receive, send
else:
    from instride._net.plain_pump import Line, Pump, Waker, receive, send
