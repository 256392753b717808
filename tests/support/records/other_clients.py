"""The record codecs of other projects' clients, for comparison.

kafka-python reads its schemas with a function that Python has deprecated. Warnings are errors in these tests, so it is
imported here, with that warning ignored.
"""

import warnings

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", "(read|open)_text is deprecated", DeprecationWarning)
    import kafka.codec
    import kafka.record.default_records
    from kafka.partitioner.default import murmur2 as kafka_python_murmur2
    from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
    from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

__all__ = ["KafkaPythonBatch", "KafkaPythonBuilder", "kafka", "kafka_python_murmur2"]
