"""The checker's parts. Users import `instride.testing.check`.

events, vocabulary, parameters     how a history is read; what it can say, and what it says of itself
folds, steps                       what each event means, taken apart for the rules
history_state, assignment          what the events add up to
rules, judge, violation, command   the invariants; who asks them; what is found; the command
ownerless                          the time without an owner
"""
