"""Triton kernels, each beside the plain-torch function it must equal; README.md derives them. Needs triton."""
