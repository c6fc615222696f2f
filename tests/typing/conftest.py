"""The programs are read by checkers and run by tests; pytest imports none of them."""

collect_ignore = ["programs"]
