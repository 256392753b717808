"""`headrace replica-verification`: compares the replicas of partitions."""
