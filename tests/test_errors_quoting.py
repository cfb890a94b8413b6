"""What others wrote, in errors and lines: on one line, printable, bounded, and without what is secret."""

from __future__ import annotations

import base64
from unicodedata import normalize
from urllib.parse import quote, quote_plus

import pytest

from instride.errors import BROKER_ERRORS, KafkaError, LocalKafkaError, TransportError
from instride.errors._quoting import LONGEST_LINE, LONGEST_QUOTE, first_of, one_line, quoted_from

SECRET = "k1tty&Canary/7?"
EVIL = "broker\n2026-01-01 CRITICAL forged\x1b[2J\u2028\u202e"
LONGER = ["\u0130", "\u00df", "\ufb03", "e\u0301", "\u1e9e"]
"""In lower case, folded, or composed otherwise they have another length."""
FORMS = {
    "plain": SECRET,
    "another case": SECRET.upper(),
    "in part": SECRET[3:11],
    "twice": SECRET + SECRET,
    "quoted": quote(SECRET, safe=""),
    "quoted as a form": quote_plus(SECRET),
    "every byte quoted": "".join(f"%{byte:02X}" for byte in SECRET.encode()),
    "hex": SECRET.encode().hex(),
    "HEX": SECRET.encode().hex().upper(),
    "hex with spaces": SECRET.encode().hex(" "),
    **{
        f"base64 at {pad}": base64.b64encode(b"user:12"[: 3 + pad] + SECRET.encode() + b"!").decode()
        for pad in range(3)
    },
    "base64 for URLs": base64.urlsafe_b64encode(SECRET.encode()).decode(),
    "base64 in part": base64.b64encode(SECRET.encode()).decode()[4:14],
}


@pytest.mark.requirement("surface/secrets")
@pytest.mark.parametrize("letter", ["", *LONGER])
@pytest.mark.parametrize("form", FORMS)
def test_a_secret_is_hidden_in_any_form(form: str, letter: str) -> None:
    told = quoted_from(f"{letter}no such user, who said {FORMS[form]} here", [SECRET])
    assert "***" in told
    assert told.startswith(f"{letter}no such user, who said ")
    parts = [FORMS[form][at : at + 6] for at in range(len(FORMS[form]) - 5)]
    assert sum(part in told for part in parts) <= 2 + form.startswith("base64 at") * 6, told


@pytest.mark.requirement("surface/secrets")
@pytest.mark.parametrize(
    "secret", ["Stra\u00dfe", "\u0130stek", "\u00c9l\u00e8ve", "\u039f\u0394\u039f\u03a3", "\ufb01sh12"]
)
@pytest.mark.parametrize("letter", ["", *LONGER])
def test_a_secret_is_hidden_though_its_letters_come_otherwise(secret: str, letter: str) -> None:
    """In another case, or with composed accents or without: some of it has another length then."""
    cases = (secret, secret.upper(), secret.lower(), secret.casefold())
    for told in {normalize(form, case) for form in ("NFC", "NFD", "NFKC", "NFKD") for case in cases}:
        assert quoted_from(f"{letter}<{told}>", [secret]) == f"{letter}<***>", ascii(told)


def test_a_short_secret_is_hidden_as_a_whole_and_no_secret_hides_nothing() -> None:
    assert quoted_from("it is abc, it is", ["abc", ""]) == "it is ***, it is"
    assert quoted_from("nothing is secret here", []) == "nothing is secret here"


def test_what_a_broker_says_is_bounded() -> None:
    assert len(quoted_from("x" * 1_000_000, [SECRET])) < LONGEST_QUOTE + 40
    assert quoted_from("x" * 300, []) == "x" * 256 + "... (44 characters more)"
    assert one_line("12", 1) == "1... (1 character more)"


@pytest.mark.parametrize(
    ("length", "many", "named"), [(10, 5, 5), (10, 20, 20), (10, 25, 20), (100, 20, 8), (250, 3, 3), (100_000, 9, 2)]
)
def test_long_names_leave_room_for_what_is_said_behind_them(length: int, many: int, named: int) -> None:
    """The end of a text is the advice, and the end is what `one_line` cuts."""
    names = [f"{number:0{length}d}" for number in range(many)]
    told = first_of(names)
    assert told.startswith(names[0][:LONGEST_QUOTE])
    assert len(told) < LONGEST_LINE / 2
    assert told.count(", ") == named - 1
    assert told.endswith(f" and {many - named} more" if many > named else names[-1])


def test_a_line_is_one_line_that_can_be_printed() -> None:
    assert one_line("as it is: é") == "as it is: é"
    line = one_line(EVIL)
    assert line.isprintable()
    assert line.startswith("broker?2026")


@pytest.mark.parametrize("kind", [TransportError, *BROKER_ERRORS.values()])
def test_every_error_is_one_bounded_line(kind: type[KafkaError]) -> None:
    text = str(kind(EVIL + "x" * 10_000))
    assert text.isprintable()
    assert len(text) < LONGEST_LINE + 40


def test_the_log_of_a_test_broker_keeps_its_lines() -> None:
    assert str(LocalKafkaError("one\ntwo")) == "one\ntwo"
