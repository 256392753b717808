"""The tool that runs the web console."""
