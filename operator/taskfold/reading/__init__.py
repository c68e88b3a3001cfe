"""How users read what a run left: an API server beside the cluster's own, for the group `results.taskfold.dev`.

It hands out, it never writes. Whoever asks comes through the API server, which has authenticated him by whatever login
he has; what he may read is asked of the API server too. Nothing here is asked by the engine, and nothing of it waits
for a leader.
"""
