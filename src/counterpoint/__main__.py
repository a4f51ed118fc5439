"""`python -m counterpoint`."""

from counterpoint.cli import main

if __name__ == "__main__":
    main()
