"""A real Kafka for tests. Users import `LocalKafka` from `instride.testing`.

local_kafka, running, readiness, admin    a cluster; its processes; when it is ready; topics
kafka_home, fetching, fetch_jars, java    the broker's jars, and a Java
jvm, settings, ports, storage, zookeeper  how a broker is started
java_properties                           how its settings are written
class_archive                             what lets its JVM start sooner
processes, keeper                         processes that cannot outlive this one
"""
