"""`python -m rankspace`, and `torchrun -m rankspace train ...`."""

from rankspace.cli import main

if __name__ == "__main__":
    main()
