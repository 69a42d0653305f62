"""A script without a guard."""

import sys

sys.stdout.write("doing all the work\n")
sys.exit(0)
