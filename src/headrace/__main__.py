import os

try:
    from headrace.cli.main import main
except KeyboardInterrupt:  # in the middle of imports
    os._exit(130)

main()
