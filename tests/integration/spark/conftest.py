from tests.support.spark_session import spark  # noqa: F401
