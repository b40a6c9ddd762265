"""Helpers shared by the buffers with TF-Agents' interface: passes over a buffer, and episodes in TF-Agents' formats."""
