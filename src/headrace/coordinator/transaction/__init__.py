"""The transaction coordinator: who writes in which transaction, and how it ends."""
