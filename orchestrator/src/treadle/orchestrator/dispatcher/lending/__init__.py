"""Gangs over several hosts: a driver lends its slots to the driver that runs a gang."""
