"""Threads, sockets and the clock.

thread, transport, resolver     the network thread; one connection; names to addresses
driver, mailbox                 runs the calls of a blocking consumer; its queue of background events
async_driver, loop_mailbox      the same in an event loop
tls, credentials                TLS; what SASL needs
oauth, kerberos                 tokens by client credentials; tickets
clock                           the one clock
"""
