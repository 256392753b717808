"""The consumer's side of a consumer group.

consumer_coordinator     join, leave, close; owns the tasks below
rebalance                one rebalance: prepare, join, sync, apply
heartbeat                heartbeats, and the limit of max.poll.interval.ms
commit_request_manager   committing and fetching offsets
coordinator_client       sends requests to the group coordinator
member                   member id, generation and state
consumer_protocol        subscription and assignment as bytes
assignors                range, round robin, sticky, cooperative-sticky
"""
