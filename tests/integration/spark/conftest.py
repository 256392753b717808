from tests.support.spark.session import spark  # noqa: F401
