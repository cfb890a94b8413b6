"""SASL without sockets: the mechanisms, and their exchange with a broker (KIP-43, KIP-84, KIP-255, KIP-368)."""
