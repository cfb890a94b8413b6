"""Checks the checker: seeded bugs in copies of the product, each of which the simulation must find (`make mutants`)."""
