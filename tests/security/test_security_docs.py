"""The examples of docs/security.md are run as they stand: addresses, files and secrets are the test broker's."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from kerberos_help import MISSING
from security_help import PASSWORD, PATIENCE, USER, Listeners, token

from instride import Consumer, TopicPartition

pytestmark = pytest.mark.kafka

PAGE = Path(__file__).parents[2] / "docs" / "security.md"
TP = TopicPartition("secured", 0)


def run(
    number: int, listeners: Listeners, replaced: Mapping[str, str] = MappingProxyType({}), **names: Any
) -> Consumer:
    """Run an example; the consumer that it builds."""
    code = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[number]
    authority = listeners.certificates.file("ca.pem")
    code = code.replace("broker.example:9094", listeners.kafka.listener("SASLTLS"))
    code = code.replace("/etc/kafka/ca.pem", authority).replace('"reader"', repr(USER))
    for old, new in replaced.items():
        code = code.replace(old, new)
    if "ssl_ca_file" not in code:  # the example trusts the system's authorities, which do not know the test's
        code = code.replace("\nConsumer(", f"\nConsumer(\n    ssl_ca_file={authority!r},")
    exec(compile(code.replace("\nConsumer(", "\nbuilt = Consumer("), f"security.md, example {number}", "exec"), names)
    built = names["built"]
    assert isinstance(built, Consumer)
    return built


def test_the_example_of_scram_over_tls(listeners: Listeners) -> None:
    with run(0, listeners, the_password=PASSWORD) as consumer:
        assert consumer.end_offsets([TP], timeout=PATIENCE) == {TP: 20}


@pytest.mark.requirement("surface/oauth-token")
def test_the_example_of_a_token_function(listeners: Listeners) -> None:
    requested = []

    def provider() -> dict[str, Any]:
        requested.append(1)
        return {"access_token": token(), "expires_in": 3600.0}

    with run(1, listeners, ask_your_identity_provider=provider) as consumer:
        assert consumer.end_offsets([TP], timeout=PATIENCE) == {TP: 20}
    assert requested


def test_the_example_of_client_credentials(listeners: Listeners) -> None:
    with run(2, listeners, the_secret="canary-secret") as consumer:
        source = consumer._config.sasl_oauth_token
        assert repr(source) == f"<OAuthClientCredentials of {USER!r} at https://login.example/oauth2/token>"


@pytest.mark.skipif(bool(MISSING), reason=f"Kerberos's example needs {', '.join(MISSING)}: see tools/kerberos")
def test_the_example_of_kerberos(listeners: Listeners, tmp_path: Path) -> None:
    """It is built; that such a consumer reads is shown in test_gssapi_kafka."""
    keytab = tmp_path / "reader.keytab"
    keytab.write_bytes(b"")
    with run(3, listeners, replaced={"/etc/reader.keytab": str(keytab)}) as consumer:
        assert consumer._config.sasl_kerberos_principal == "reader@EXAMPLE"


def test_there_is_no_example_that_is_not_run() -> None:
    assert len(re.findall(r"```python\n", PAGE.read_text(encoding="utf-8"))) == 4
