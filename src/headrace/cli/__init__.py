"""The shell tools. Each tool is a command of the one `headrace` program."""
