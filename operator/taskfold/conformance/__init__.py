"""The contract as a table of small task folders: what each proves, and what a cluster must answer.

`cases` is data. `taskfold conformance` runs it against a cluster; the tests run it against the local one, and the
parts that need none without.
"""
