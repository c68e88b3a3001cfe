"""The only code that does I/O: API client, exec, transfer, registry, store, task sources.

Nothing in here decides anything: an effect does what it is told, proves that it was done, and raises one of
`errors` when it was not. Nothing above `engine` needs to know how.
"""
