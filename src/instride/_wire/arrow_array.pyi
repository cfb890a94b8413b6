"""What `arrow_array.py` offers, for type checkers (its own annotations speak Cython)."""

from typing import Final, TypeAlias

COMPILED: Final[bool]

Buffer: TypeAlias = bytes | bytearray | memoryview
# How many values; its buffers, as Arrow's layout of its type has them; its children; its dictionary.
Node: TypeAlias = tuple[int, tuple[Buffer | None, ...], tuple["Node", ...], "Node | None"]

def export(node: Node) -> int:
    """The address of an ArrowArray (Arrow's C data interface), for one importer. `discard` it afterwards.

    The buffers live until the importer's last array goes; nobody may change them.
    """

def discard(address: int) -> None:
    """Free the structure, and what it holds if nobody has imported it."""
