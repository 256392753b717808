"""An online shop as an example: the pipelines `ods-dwd` and `dws-traffic`, an event generator and an audit.

See docs/shop.md and docs/datagen.md.
"""
