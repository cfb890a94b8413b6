"""instride: a Kafka consumer that keeps its stride through rebalances."""
