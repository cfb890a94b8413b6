"""How a real Kafka is found, configured, started and ended. Users import `LocalKafka` from `instride.testing`."""
