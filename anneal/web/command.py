"""`python -m anneal.web.command ARGUMENTS`: a command of anneal's, as child processes run it."""

from anneal.cli import main

if __name__ == "__main__":
    main()
