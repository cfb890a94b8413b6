"""Texts for Java's properties files.

Laws
1. Java takes each byte of such a file for a letter (ISO-8859-1). So all is ASCII here: any other letter is written as
   its units of UTF-16.
"""

from __future__ import annotations

from typing import Final

__all__ = ["escaped"]

_ESCAPES: Final = {
    "\\": "\\\\",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\f": "\\f",
    "=": "\\=",
    ":": "\\:",
    "#": "\\#",
    "!": "\\!",
    " ": "\\ ",
}


def escaped(text: str) -> str:
    """A key or a value, as Java's ``Properties`` reads it back."""
    return "".join(_ESCAPES.get(letter) or _in_ascii(letter) for letter in text)


def _in_ascii(letter: str) -> str:
    if letter <= "~":
        return letter
    units = letter.encode("utf-16-be", "surrogatepass").hex("-", 2).split("-")
    return "".join(f"\\u{unit}" for unit in units)
