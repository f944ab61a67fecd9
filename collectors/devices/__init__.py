"""Samples of the machine that the agent runs on: GPU boards through NVML, and the spool that carries them away.

Add a module per kind of device. Keep out servers and files of others (`collectors.protocols`).
"""
