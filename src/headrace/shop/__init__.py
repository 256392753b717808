"""Pipelines of an online shop: `ods-dwd` and `dws-traffic`. See docs/shop.md."""
