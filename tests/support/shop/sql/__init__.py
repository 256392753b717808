"""The SQL version of `ods-dwd`, as the reference for the Arrow version: both must write the same rows."""
