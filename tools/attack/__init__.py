"""Lying brokers, fellow members and producers, a damaging network, scarce resources; and one judge of what a consumer
does about them. `cases` is the list; see docs/security.md."""
