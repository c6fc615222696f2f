"""`python -m anneal`: the command line."""

from anneal.cli import main

if __name__ == "__main__":
    main()
