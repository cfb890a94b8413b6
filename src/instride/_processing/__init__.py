"""What handles records beside the polls.

processor, definition                     `Processor`, how it may run
running_processor, poll_loop              a run of it, its loop
commits_in_flight                         which commit may go beside one that has no response
engine, attempts, retries, breaker        which record is started next; tries, retries, the circuit breaker
crashes                                   which record has killed the process
thread_workers, forks                     handlers in threads, which may fork
coroutine_workers, event_loop             handlers on an event loop with exact timers
process_workers, process_child            handlers in processes; such a process
partition_executor, partition_queues      `PartitionExecutor`, and a queue for each partition
back_pressure                             when both pause and resume a partition
arrow_batches, outputs, dead_letters      batches as Arrow tables; output topics; dead letters, and writing both
store, async_store, store_positions       a database, for threads and for coroutines; where it says partitions begin
commit_metadata                           what a commit remembers
lifespan, origin, health, processor_kit   set-up and tear-down; where a record is from; health; the test kit
"""
