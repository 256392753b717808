"""What the shell tools share: options, connections, output, progress."""
