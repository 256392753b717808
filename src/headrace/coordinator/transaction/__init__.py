"""The transaction coordinator: transactional producers and their transactions, stored in `__transaction_state`."""
