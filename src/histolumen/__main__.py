"""`python -m histolumen`, which `torchrun -m histolumen` needs."""

from histolumen.cli import main

if __name__ == "__main__":
    main()
