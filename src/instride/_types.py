"""The types of a record's key and value, for type checkers: `Any` where a consumer has no deserializers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    from typing_extensions import TypeVar

    K = TypeVar("K", default=Any)
    V = TypeVar("V", default=Any)
    K_co = TypeVar("K_co", covariant=True, default=Any)
    V_co = TypeVar("V_co", covariant=True, default=Any)
else:  # a default needs Python 3.13, or a package that nothing else of ours needs
    from typing import TypeVar

    K, V = TypeVar("K"), TypeVar("V")
    K_co, V_co = TypeVar("K_co", covariant=True), TypeVar("V_co", covariant=True)

__all__ = ["K", "K_co", "V", "V_co"]
