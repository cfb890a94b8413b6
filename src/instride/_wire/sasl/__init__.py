"""SASL without sockets (KIP-43, KIP-84, KIP-255, KIP-368).

exchange, messages                   what a mechanism is; its exchange with a broker
plain, scram, oauthbearer, gssapi    the mechanisms
"""
