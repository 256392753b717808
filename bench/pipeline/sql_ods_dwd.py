"""The peer: `ods-dwd` in SQL, as a file for `headrace pipeline run`. It keeps the name, and so the topics.

headrace pipeline run bench/pipeline/sql_ods_dwd.py ...
"""

from tests.support.shop.sql.ods_dwd import make_ods_dwd

sql_ods_dwd = make_ods_dwd()
