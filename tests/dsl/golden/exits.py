"""A script without a guard."""

import sys

print("doing all the work")
sys.exit(0)
