"""That what listens for secrets in all of this folder's tests hears them (see conftest.py)."""

from __future__ import annotations

import base64
import logging

import pytest
from canaries import everything_told, secrets_in
from security_help import PASSWORD, token

from instride._wire.sasl.scram import Scram, ScramCredentials
from instride.errors import ConfigError, TlsError


@pytest.mark.parametrize("before", ["", "x", "xy", "xyz"])
def test_a_password_is_found_also_as_base64(before: str) -> None:
    assert secrets_in(f"... {PASSWORD} ...")
    assert secrets_in(base64.b64encode(f"{before}{PASSWORD}".encode()).decode())


def test_tokens_and_proofs_are_found() -> None:
    assert secrets_in(f"auth=Bearer {token()}")
    scram = Scram(ScramCredentials("SCRAM-SHA-256", "u", "p"), nonce="abc")
    assert secrets_in(str(scram.response(b"r=abcd,s=W22Z,i=4096")))
    assert secrets_in("the broker refused p=abc, and nobody's e-mail: eyJ") == []


def test_logs_at_debug_and_errors_that_nobody_sees_are_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch, everything_told(patch) as told:
        logging.getLogger("instride.somewhere").debug("no secret %s", "in here")
        str(TlsError("nor here"))
        with pytest.raises(ConfigError):
            raise ConfigError("or there")
    assert told == ["no secret in here", "nor here", "or there"]
    logging.getLogger("instride.somewhere").error("after it")
    assert len(told) == 3
