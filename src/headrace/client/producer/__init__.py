"""The producer.

    send() ─▶ interceptors, serializers, partitioner (_send) ─▶ open ProducerBatch of a partition (_batch)
                     │ no metadata, no memory, batch full
                     ▼
              BaseProducer._append ─▶ Accumulator ─▶ Sender ─▶ NetworkClient ─▶ brokers
                                          ▲             ▲
                                     BufferPool     ProducerMetadata, Sequences, TransactionManager

- `producer` has the blocking producer, `headrace.aio.producer` the asyncio producer. Both extend `BaseProducer`.
- `ProducerCore` creates the other parts on the event loop.
- Appending to an open batch needs no lock (see `_send`). The accumulator's lock guards everything else that several
  threads use.
- A future is a batch and an index, so completing a batch costs the same for one record and for ten thousand.
"""
