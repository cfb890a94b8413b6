"""Who gets which partition, as the group's leader decides it.

assignor                    what an assignor is; the check of what one returns
range, roundrobin, sticky   ours; `sticky` has `sticky` and `cooperative-sticky`
selection                   those that a consumer offers, and the rebalance protocol that they share
"""
