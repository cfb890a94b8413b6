"""The simulation's parts: plans of runs (`plan`, `planning*`), the models of brokers and network, the members, and what
is made of a run. Users import `instride.testing.simulation`.
"""
