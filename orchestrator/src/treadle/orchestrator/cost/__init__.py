"""The cost of runs: usage and its price.

usage      the units, the same on every executor
prices     the price of a unit
bill       usage with its price, by node
estimate   usage by the plan, before the run
measured   usage by the ledgers, during the run and after it, and of resident workers while they wait
"""
