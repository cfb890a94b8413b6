"""The machine on the application's thread: what happens inside a call of the consumer.

machine                          every verb; the others are its parts
state, inbox, background_events  what it knows; events of the network side, until and when they take effect
polling, fairness                a poll, in its order; which records it returns
listener_calls                   calls of the rebalance listener, which may raise
revoke_lists, partition          the lists of KIP-983, `delay_revoke`; one partition's buffer and position
committing, seeking              which offsets a commit may name; where a partition goes on
subscribing, closing             the beginning and the end of a subscription
lookup_calls, deserializing      verbs that ask brokers; bytes to keys and values
ownership_view                   telemetry, `holdings`
calls                            how a call that waits is written
"""
