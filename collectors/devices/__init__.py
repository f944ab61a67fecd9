"""Samples of the machine that the agent runs on: GPU boards through NVML, and the spool that transports them.

Add a module per kind of device. Keep out servers and other programs' files (`collectors.protocols`).
"""
