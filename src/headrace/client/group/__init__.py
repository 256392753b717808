"""Groups of consumers: who reads which partition, and how far the group has come.

assignors   which member gets which partitions (range, round robin, sticky, cooperative-sticky)
protocol    what members tell each other through the coordinator
membership  join, sync, heartbeat, leave
commits     committed offsets
"""
