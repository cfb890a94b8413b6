"""Bytes to messages and back, without sockets.

api, codecs, fetch_codec, reader                           requests and responses, and their bytes in every version
connection, frames, segments, handshake, not_kafka, sasl   one connection: frames, versions, authentication
decoder, record_set, batch_headers, batch_walk,
record_index, chunk, compression, compiled,
arrow, arrow_array                                         record batches to columns; most of it is compiled
consumer_protocol, group_notice                            what members of a group say to each other
"""
