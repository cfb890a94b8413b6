"""Bytes to messages and back, without sockets.

api, message_codecs, fetch_codec, reader   requests and responses, and their bytes in every version
connection, frames, memory_pool,
handshake, not_kafka, sasl                 one connection: frames and their memory, versions, authentication
decoder, record_set, batch_headers,
batch_filter, record_index,
record_chunk, compression, compiled,
arrow, arrow_array                         record batches to columns; most of it is compiled
consumer_protocol, group_notice            what members of a group say to each other
"""
