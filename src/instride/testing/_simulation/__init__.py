"""The simulation's parts. Users import `instride.testing.simulation`.

plan, planning, planning_*                     what a history is to be; plans by chance
cluster, scheduler, history                    all of one plan together; virtual time; what happened
member, verbs, workers, executing              the users' loops, and what they call
unruly, interrupts, user_behaviour             users who call anything at any moment
process, links, pipes, network, faults         a member's process, connections, what befalls them
untaken                                        events that a network side sent and no poll has taken yet
broker_model, session_model, log_model, chunk  models of brokers, fetch sessions, logs and records
topic_ids, former                              topics that are recreated; as a node has one that hears of it late
coordinator_model, group_members,
group_protocols, committed_offsets,
initial_delay, refusals                        the model of the group's coordinator; what brokers refuse
campaign, corpus, shrinking, transcript        many histories; kept plans; short ones; for people
coverage, verb_pairs, busiest, load            what is counted
"""
