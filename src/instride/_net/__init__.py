"""Threads, sockets and the clock.

thread, transport, resolver     the network thread; one connection; names to addresses
pump, compiled_pump, plain_pump what reads and writes the sockets: compiled, and in plain Python
driver, mailbox                 runs the calls of a blocking consumer; its queue of background events
async_driver, loop_mailbox      the same in an event loop
tls, openssl, credentials       TLS; its reads without the GIL; what SASL needs
oauth, kerberos                 tokens by client credentials; tickets
clock, call_stack               the one clock; which calls are under way
"""
