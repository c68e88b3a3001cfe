"""`python -m taskfold`."""

from taskfold.cli.main import main

if __name__ == "__main__":
    main()
