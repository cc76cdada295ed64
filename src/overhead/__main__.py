"""`python -m overhead` is the `overhead` command."""

from overhead.cli import main

main()
