"""Shared parts of the shell tools: options, connections, output, progress."""
