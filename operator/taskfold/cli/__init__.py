"""`taskfold …`: the command line."""
