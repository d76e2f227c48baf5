"""Exact inference for grammars with a full rule tensor: dense PCFGs and LPCFG."""
