"""The machine on the network thread: what is sent to brokers, and what their responses mean.

machine                            polls the parts; closing
context, actions                   what the parts share; what the thread is to do
group, coordinator, subscription   join, sync, heartbeat, leave; the coordinator; patterns
assignment, assigned_partitions    which partitions are owned, and how that changes; when a complete revoke leads to a
                                   rejoin (several within 0.4 s to one); their table
positions, fetcher, ranges         where reading begins; fetches, sessions, capacity; the ends of logs
commits, lookups                   OffsetCommit; requests that change nothing
cluster, connections               metadata and leaders; requests by connection, time-outs, back-off
telemetry_monitor                  what telemetry learns of rebalances and stalls
"""
