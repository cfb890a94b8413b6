"""A password that is given to the source, the sink or a pipeline is in nothing that Spark tells of them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from app_help import HERE, environment
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._scram import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from filled_topics import fill
from instride.testing import LocalKafka

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(900)]

USER, PASSWORD = "ann", "hush-hush-5318008"


@pytest.fixture(scope="module")
def secure() -> Iterator[LocalKafka]:
    """With a listener that wants a password."""
    properties = {
        "listener.name.login.sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "listener.name.login.scram-sha-256.sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        ),
    }
    with LocalKafka(properties=properties, listeners={"LOGIN": "SASL_PLAINTEXT"}) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
        change = UserScramCredentialUpsertion(USER, credential, PASSWORD.encode())
        for future in admin.alter_user_scram_credentials([change]).values():
            future.result(60)
        yield kafka


@pytest.fixture(scope="module")
def told(secure: LocalKafka, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with all that such a Spark has told."""
    folder = tmp_path_factory.mktemp("told")
    secure.create_topic("secrets", 2)
    fill(secure, "secrets", {0: 20, 1: 20})
    settings = {"servers": secure.listener("LOGIN"), "user": USER, "password": PASSWORD}
    command = [
        sys.executable,
        str(HERE / "secrets_app.py"),
        json.dumps({**settings, "topic": "secrets", "folder": str(folder)}),
    ]
    with (folder / "plans").open("wb") as plans, (folder / "log").open("wb") as log:
        done = subprocess.run(command, stdout=plans, stderr=log, env=environment(), timeout=800, check=False)
    assert done.returncode == 0, (folder / "log").read_text()[-3000:]
    return folder


# By what is looked through, a text that it must have: else it would not be what it is named after.
PLACES = {
    "plans": ["Physical Plan", "read 40", "streamed 80", "committed 80", "the query fails"],
    "log": ["INFO org.apache.spark", "DEBUG org.apache.spark.sql", "TaskSetManager"],
    "ui": ["/SQL/execution/?id=", "/StreamingQuery/statistics", "/stages/stage/?id=", "/api/v1/applications/"],
    "events": ["SparkListenerSQLExecutionStart", "SparkListenerTaskEnd", "QueryProgressEvent"],
    "at": ['"topics"'],
}


@pytest.mark.requirement("source/secret-plans", "source/secret-log", "source/secret-ui", "source/secret-events")
@pytest.mark.requirement("source/secret-checkpoint")
def test_no_secret_is_in_what_spark_tells(told: Path) -> None:
    """One test of all places: each worker that ran one of them would start a broker and a Spark of its own."""
    for place, sure in PLACES.items():
        whole = "\n".join(_texts(told / place))
        assert [each for each in sure if each not in whole] == [], place
        found = whole.find(PASSWORD)
        assert found == -1, (place, whole[max(0, found - 500) :][:600])


def _texts(where: Path) -> Iterator[str]:
    for each in [where] if where.is_file() else where.rglob("*"):
        if each.is_file():
            yield each.read_bytes().decode("utf-8", "replace")
