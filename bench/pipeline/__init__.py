"""Measures `ods-dwd` with broker and generator on one machine: Arrow flows, the same pipeline in SQL, and the same SQL
on Spark's JVM connector. `runner` lists the parts."""
