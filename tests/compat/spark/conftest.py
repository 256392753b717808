from tests.support.spark_session import kafka_connector, spark  # noqa: F401
