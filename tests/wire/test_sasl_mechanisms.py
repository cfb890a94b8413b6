"""Each mechanism alone: what it says, and what it does not believe."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instride._wire.sasl.gssapi import Gssapi
from instride._wire.sasl.messages import SaslAuthenticate
from instride._wire.sasl.oauthbearer import OAuthBearer, OAuthToken
from instride._wire.sasl.plain import Plain
from instride._wire.sasl.scram import MOST_ITERATIONS, Scram, ScramCredentials, ScramName
from instride.errors import AuthenticationError

NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"


def scram(name: ScramName = "SCRAM-SHA-256", username: str = "user", password: str = "pencil") -> Scram:
    return Scram(ScramCredentials(name, username, password), nonce=NONCE)


@pytest.mark.requirement("surface/scram")
def test_the_exchange_of_rfc_7677() -> None:
    mechanism = scram()
    assert mechanism.start() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert mechanism.response(SERVER_FIRST) == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert mechanism.response(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=") is None


@pytest.mark.requirement("surface/scram")
@pytest.mark.parametrize(
    "last",
    [
        b"v=7rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
        b"v=",
        b"",
        b"x=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
        b"v=not base64",
        b"\xff",
        b"e=other-error",
    ],
)
def test_a_broker_that_does_not_prove_itself_is_refused(last: bytes) -> None:
    mechanism = scram()
    mechanism.start()
    mechanism.response(SERVER_FIRST)
    with pytest.raises(AuthenticationError):
        mechanism.response(last)


@pytest.mark.parametrize(
    ("first", "why"),
    [
        (b"r=other,s=W22Z,i=4096", "not bound"),
        (b"r=rOprNGfwEbeRWgbNEkqO,s=W22Z,i=4096", "not bound"),
        (b"r=XrOprNGfwEbeRWgbNEkqO,s=W22Z,i=4096", "not bound"),
        (b"r=rOprNGfwEbeRWgbNEkqOx,s=W22Z,i=4095", "4095 iterations"),
        (b"r=rOprNGfwEbeRWgbNEkqOx,s=W22Z,i=1000001", "1000001 iterations"),
        (b"r=rOprNGfwEbeRWgbNEkqOx,s=W22Z,i=-1", "not a number"),
        (b"r=rOprNGfwEbeRWgbNEkqOx,s=W22Z,i=" + b"9" * 30, "not a number"),
        (b"r=rOprNGfwEbeRWgbNEkqOx,s=W22Z", "does not hold"),
        (b"m=ext,r=rOprNGfwEbeRWgbNEkqOx,s=W22Z,i=4096", "does not hold"),
        (b"r=rOprNGfwEbeRWgbNEkqOx,s=!,i=4096", "base64"),
        (b"", "attributes"),
        (b"\xff\xfe", "not text"),
        (b"r=" + b"x" * 5000, "attributes"),
    ],
)
def test_a_first_message_that_breaks_the_rules_is_refused(first: bytes, why: str) -> None:
    mechanism = scram()
    mechanism.start()
    with pytest.raises(AuthenticationError, match=why) as refused:
        mechanism.response(first)
    assert "pencil" not in str(refused.value)


def test_the_most_iterations_are_done() -> None:
    mechanism = scram()
    mechanism.start()
    assert mechanism.response(b"r=rOprNGfwEbeRWgbNEkqOx,s=W22Z,i=%d" % MOST_ITERATIONS)


def test_a_name_is_escaped_so_that_it_cannot_add_attributes() -> None:
    assert scram(username="a=b,c=2C").start() == b"n,,n=a=3Db=2Cc=3D2C,r=rOprNGfwEbeRWgbNEkqO"


def server_signature(hash_name: str, password: str, first_bare: bytes, server_first: bytes, final: bytes) -> bytes:
    """What a broker with that password says last (RFC 5802, 3), written apart from the code under test."""
    parts = dict(part.split(b"=", 1) for part in server_first.split(b","))
    salted = hashlib.pbkdf2_hmac(hash_name, password.encode(), base64.b64decode(parts[b"s"]), int(parts[b"i"]))
    message = b",".join((first_bare, server_first, final.rsplit(b",p=", 1)[0]))
    key = hmac.new(salted, b"Server Key", hash_name).digest()
    return b"v=" + base64.b64encode(hmac.new(key, message, hash_name).digest())


def test_the_signature_is_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return False

    monkeypatch.setattr(hmac, "compare_digest", compare)
    mechanism = scram()
    mechanism.start()
    mechanism.response(SERVER_FIRST)
    with pytest.raises(AuthenticationError, match="impostor"):
        mechanism.response(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")
    assert len(compared) == 1, "nothing else decides"
    assert compared[0][0] == compared[0][1]


@pytest.mark.parametrize(("name", "hash_name"), [("SCRAM-SHA-256", "sha256"), ("SCRAM-SHA-512", "sha512")])
@given(password=st.text(min_size=1, max_size=20).filter(lambda text: text.isprintable()))
def test_only_a_broker_with_the_same_password_is_believed(name: ScramName, hash_name: str, password: str) -> None:
    mechanism = scram(name, "ü,=", password)
    first = mechanism.start()
    final = mechanism.response(SERVER_FIRST)
    assert final is not None
    bare = first.removeprefix(b"n,,")
    assert mechanism.response(server_signature(hash_name, password, bare, SERVER_FIRST, final)) is None
    with pytest.raises(AuthenticationError, match="impostor"):
        mechanism.response(server_signature(hash_name, password + "x", bare, SERVER_FIRST, final))


def test_plain() -> None:
    mechanism = Plain("user", "pass,=word")
    assert mechanism.start() == b"\0user\0pass,=word"
    assert mechanism.response(b"") is None
    with pytest.raises(AuthenticationError, match="challenge"):
        mechanism.response(b"more")


def test_a_token_and_its_extensions() -> None:
    mechanism = OAuthBearer(OAuthToken(value="a.b.c", extensions={"logicalCluster": "lkc-1"}))
    assert mechanism.start() == b"n,,\x01auth=Bearer a.b.c\x01logicalCluster=lkc-1\x01\x01"
    assert mechanism.response(b"") is None


def test_a_refused_token_is_never_a_success() -> None:
    mechanism = OAuthBearer(OAuthToken(value="secret-token"))
    mechanism.start()
    assert mechanism.response(b'{"status":"invalid_token","echo":"secret-token"}\n') == b"\x01"
    with pytest.raises(AuthenticationError, match=r"invalid_token.*\*\*\*") as refused:
        mechanism.response(b"")
    assert "secret-token" not in str(refused.value)


@pytest.mark.parametrize("value", ["", "a\x01auth=Bearer b", "one two", "a\n", "ä"])
def test_a_token_cannot_smuggle(value: str) -> None:
    with pytest.raises(ValueError, match="token") as refused:
        OAuthToken(value=value)
    assert not value or value not in str(refused.value)


@pytest.mark.parametrize("extensions", [{"auth": "x"}, {"a": "b\x01c"}, {"a=": "b"}, {"": "b"}])
def test_an_extension_cannot_smuggle(extensions: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="extension"):
        OAuthToken(value="a", extensions=extensions)


@pytest.mark.requirement("surface/secrets")
def test_no_repr_shows_a_secret() -> None:
    token = OAuthToken(value="canary", extensions={"a": "canary"})
    for value in (
        Plain("user", "canary"),
        token,
        OAuthBearer(token),
        scram(password="canary"),
        ScramCredentials("SCRAM-SHA-256", "user", "canary"),
        SaslAuthenticate(auth_bytes=b"canary"),
    ):
        assert "canary" not in repr(value)


class Context:
    """A GSS-API context with one step, in which wrapping is turning round."""

    def __init__(self, *, mutual: bool = True, steps: int = 1) -> None:
        self.mutual = mutual
        self._steps = steps

    @property
    def complete(self) -> bool:
        return self._steps == 0

    def step(self, token: bytes) -> bytes:
        self._steps -= 1
        return b"" if self.complete else b"more"

    def wrap(self, message: bytes) -> bytes:
        return message[::-1]

    unwrap = wrap


def test_gssapi_chooses_no_layer() -> None:
    mechanism = Gssapi(Context(steps=2), b"ticket")
    assert (mechanism.name, mechanism.secrets, mechanism.start()) == ("GSSAPI", (), b"ticket")
    assert mechanism.response(b"x") == b"more"
    assert mechanism.response(b"proof") == b""
    assert mechanism.response(bytes((0, 0, 1, 7))) == bytes((0, 0, 0, 1))
    assert mechanism.response(b"") is None


@pytest.mark.parametrize("offer", [b"", bytes((0, 0, 1)), bytes((0, 0, 0, 0, 1)), bytes((0, 0, 1, 6))])
def test_a_broker_that_wants_a_layer_is_refused(offer: bytes) -> None:
    mechanism = Gssapi(Context(), b"ticket")
    mechanism.response(b"proof")
    with pytest.raises(AuthenticationError, match="security layer"):
        mechanism.response(offer)


def test_a_broker_that_does_not_prove_itself_by_kerberos_is_refused() -> None:
    mechanism = Gssapi(Context(mutual=False), b"ticket")
    mechanism.response(b"proof")
    with pytest.raises(AuthenticationError, match="mutual"):
        mechanism.response(bytes((0, 0, 1, 7)))


def test_a_broker_that_goes_on_after_its_offer_is_refused() -> None:
    mechanism = Gssapi(Context(), b"ticket")
    mechanism.response(b"proof")
    mechanism.response(bytes((0, 0, 1, 7)))
    with pytest.raises(AuthenticationError, match="end"):
        mechanism.response(b"more")


def test_a_password_is_salted_once_for_the_same_salt(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes longer than all else, and each new connection asks for it."""
    salted: list[bytes] = []
    pbkdf2 = hashlib.pbkdf2_hmac

    def counting(name: str, password: bytes, salt: bytes, iterations: int) -> bytes:
        salted.append(salt)
        return pbkdf2(name, password, salt, iterations)

    monkeypatch.setattr(hashlib, "pbkdf2_hmac", counting)
    credentials = ScramCredentials("SCRAM-SHA-256", "user", "pencil")
    proofs = [Scram(credentials, nonce=NONCE).response(SERVER_FIRST) for _ in range(3)]
    assert len(set(proofs)) == 1
    assert len(salted) == 1
    Scram(credentials, nonce=NONCE).response(SERVER_FIRST.replace(b"s=W22Z", b"s=X22Z"))
    assert len(salted) == 2, "another broker's salt"


@pytest.mark.parametrize("seconds", [10**400, 10**9, float("inf"), float("nan"), "3600"])
def test_a_token_is_not_good_for_longer_than_numbers_go(seconds: object) -> None:
    with pytest.raises(ValueError, match="expires_in"):
        OAuthToken(value="a", expires_in=seconds)  # type: ignore[arg-type]
