"""Decides what a consumer does, without I/O: no socket, thread, clock or random number.

network                 the machine on the network thread: group, assignment, positions, fetches, commits
application             the machine on the application's thread: polls, the lists of KIP-983, buffers, listeners
events, session_lease   what the two machines tell each other
ownership               the states of a partition between its assignment and its end
assignors, metrics      who gets which partition; numbers over time
telemetry_lines         telemetry's events as lines of the log
"""
