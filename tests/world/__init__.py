"""A world for tests: an API server, nodes, sandboxes and a store in one process, under a clock that the test moves.

The real engine and the real client run in it; only what is below `effects.transport` and the store is modelled.
"""
