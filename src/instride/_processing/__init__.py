"""What handles records beside the polls, on public names only.

processor, definition, running, rounds    `Processor`, how it may run, a run of it, its loop
engine, attempts, failures, breaker       which record is started next; tries, retries, the circuit breaker
workers, process_workers, process_child   handlers in threads, on an event loop, in processes
partition_executor, partition_queues      `PartitionExecutor`, and a queue for each partition
outputs, dead_letters, store, remembered  output topics; dead letters; a database; what a commit remembers
lifespan, origin, health, kit             set-up and tear-down; where a record is from; health; the test kit
"""
