"""The messages, one module per API. Written by tools/generate_messages.py; do not edit."""
