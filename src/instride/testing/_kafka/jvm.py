"""The command line of a broker's JVM, of Kafka's format tool, and of ZooKeeper for brokers that need one.

Laws
1. Nothing is written outside of the cluster's folder, not even what a JVM leaves behind when it is killed.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from instride.testing._kafka.java import Java
from instride.testing._kafka.kafka_home import KafkaHome

__all__ = ["QUICK_JVM", "Jvm"]

# The client compiler alone and the serial collector: half the processor time until a broker's first response.
QUICK_JVM: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")

_LOG4J2: Final = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss.SSS} [%t] %p %c - %m%n
rootLogger.level = INFO
rootLogger.appenderRef.console.ref = console
logger.config.name = org.apache.kafka.common.config
logger.config.level = WARN
"""

# Kafka as fetched logs with slf4j-simple, an unpacked distribution with log4j: each reads its own settings. Both leave
# out the list of all of the broker's settings, which would be most of the log.
_LOGGING: Final = (
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
    "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.common.config=warn",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Jvm:
    """java, home: what runs. options: of the JVM. folder: the cluster's, prepared by ``prepare``."""

    java: Java
    home: KafkaHome
    options: tuple[str, ...]
    folder: Path

    def prepare(self) -> None:
        """Write what every JVM needs in the folder."""
        self._scratch.mkdir()
        self._log4j2.write_text(_LOG4J2, encoding="ascii")

    def broker(self, settings: Path) -> list[str]:
        return self._command("kafka.Kafka", str(settings))

    def format_tool(self, settings: Path, cluster_id: str) -> list[str]:
        """In the form with ``=``, since an id may start with a dash, which the tool would take for an option."""
        return self._command("kafka.tools.StorageTool", "format", f"--cluster-id={cluster_id}", "-c", str(settings))

    def zookeeper(self, settings: Path) -> list[str]:
        return self._command("org.apache.zookeeper.server.quorum.QuorumPeerMain", str(settings))

    def _command(self, *main: str) -> list[str]:
        return [
            str(self.java.path),
            *self.options,
            "-XX:-UsePerfData",  # a file in the system's folder for temporary files, which a killed JVM leaves there
            f"-XX:ErrorFile={self.folder / 'hs_err.log'}",
            f"-Djava.io.tmpdir={self._scratch}",
            "-Djava.awt.headless=true",
            f"-Dlog4j2.configurationFile={self._log4j2}",
            *_LOGGING,
            "-cp",
            self.home.class_path,
            *main,
        ]

    @property
    def _scratch(self) -> Path:
        return self.folder / "scratch"

    @property
    def _log4j2(self) -> Path:
        return self.folder / "log4j2.properties"
