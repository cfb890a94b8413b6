"""What others wrote, and what is counted or listed, made fit for an error's text or a line of a log.

Laws
1. A broker, or whoever speaks in its place, chooses names and texts. None of them begins a new line, moves a terminal's
   cursor or fills a disk: every error and every line of ours goes through `one_line`.
2. A secret that comes back in such a text is not told: neither plain, nor quoted as a URL, nor as hex or base64 (at any
   place of a longer text), nor in part, down to `_PART` characters of such a form. Nor in another case, nor with an
   accent that is composed otherwise.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from typing import Final
from unicodedata import normalize
from urllib.parse import quote, quote_plus

__all__ = ["LONGEST_LINE", "LONGEST_QUOTE", "MOST_NAMED", "counted", "first_of", "one_line", "quoted_from"]

LONGEST_LINE: Final = 2000
"""Characters of an error's text, and of a line of a log."""
LONGEST_QUOTE: Final = 256
"""Characters of a broker's own text within them."""
MOST_NAMED: Final = 20
"""Of many partitions, or members, in one text, at most (rule 20)."""
# Characters of all their names: what is said behind them, an advice say, is not to be cut off.
_LONGEST_NAMES: Final = 800
_PART: Final = 6
# As much of a text is searched; what is beyond is never told.
_SEARCHED: Final = 4096


def one_line(text: str, most: int = LONGEST_LINE) -> str:
    """At most `most` printable characters, and where some were cut a word on it."""
    shown = text[:most]
    if not shown.isprintable():
        shown = "".join(letter if letter.isprintable() else "?" for letter in shown)
    return shown if len(text) <= most else f"{shown}... ({counted(len(text) - most, 'character')} more)"


def counted(number: int, what: str) -> str:
    """what: one of them, a word with an ordinary plural."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def first_of(names: Sequence[object]) -> str:
    """As many as are named, and how many more there are."""
    told = [one_line(str(each), LONGEST_QUOTE) for each in names[:MOST_NAMED]]
    while sum(map(len, told)) > _LONGEST_NAMES:
        told.pop()
    more = len(names) - len(told)
    return ", ".join(told) + (f" and {more} more" if more > 0 else "")


def quoted_from(text: str, secrets: Iterable[str]) -> str:
    """What a broker said, as it may be repeated: law 2, and at most `LONGEST_QUOTE` characters."""
    return one_line(_hidden(text[:_SEARCHED], secrets), LONGEST_QUOTE)


def _hidden(text: str, secrets: Iterable[str]) -> str:
    parts = {part for secret in secrets for form in _forms(secret) for part in _parts(form)}
    folded = [_folded(letter) for letter in text]
    whole, places = "".join(folded), [at for at, letters in enumerate(folded) for _ in letters]
    covered = bytearray(len(text))
    for length in {len(part) for part in parts}:
        for start in range(len(whole) - length + 1):
            if whole[start : start + length] in parts:
                first, last = places[start], places[start + length - 1]
                covered[first : last + 1] = b"\1" * (last + 1 - first)
    return "".join(
        "***" if hide and (at == 0 or not covered[at - 1]) else "" if hide else letter
        for at, (letter, hide) in enumerate(zip(text, covered, strict=True))
    )


def _folded(text: str) -> str:
    """Letter by letter: some become several, and each of those is to be found at the place of its own."""
    return "".join(normalize("NFKD", letter).casefold() for letter in text)


def _parts(form: str) -> Iterable[str]:
    length = min(_PART, len(form))
    return (form[at : at + length] for at in range(len(form) - length + 1)) if form else ()


def _forms(secret: str) -> Iterable[str]:
    """The secret and its encodings, folded: a text's letters are compared so, whatever form they have."""
    raw = secret.encode()
    forms = [secret, quote(secret, safe=""), quote_plus(secret), raw.hex(), raw.hex(" "), raw.hex(":")]
    forms.append("".join(f"%{byte:02x}" for byte in raw))
    if len(raw) >= _PART - 1:
        # Where it stands in a longer text decides its letters; the first and the last hold its neighbours' bits too.
        for pad in range(3):
            whole = base64.b64encode(bytes(pad) + raw).decode().rstrip("=")
            inner = whole[(0, 2, 3)[pad] : len(whole) - 1]
            forms += [inner, inner.replace("+", "-").replace("/", "_")]
    return [_folded(form) for form in forms]
