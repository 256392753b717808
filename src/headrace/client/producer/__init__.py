"""The producer: interceptors, serializers, partitioner, accumulator, sender.

    send() ──▶ _send (any thread) ──▶ ProducerBatch of a partition ──▶ Accumulator ──▶ Sender (the loop) ──▶ brokers
                                            ▲                                             │
                                       BufferPool                      Sequences, TransactionManager (the loop)

A record never waits for a lock: see `_send`. Everything else that more than one thread touches is the accumulator's and
stands under its lock. Futures point at their batch, so a batch's reply costs the same for one record and for ten
thousand.
"""
