"""`headrace capacity`: the size of a cluster for a given load."""
