"""The checker's parts: how a history is read (`events`, `vocabulary`), what follows from it (`folds`, `history_state`),
the invariants (`rules`), and who asks them (`judge`, `command`). Users import `instride.testing.check`.
"""
