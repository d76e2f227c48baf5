"""Chains: forward, backward and every query on them, as functions of tensors."""
