"""What a task folder means: a pure library, usable without Kubernetes.

Nothing in this package talks to a network, reads a clock, logs or keeps state. The only I/O is reading the
folder that a caller hands over (`folder`), and writing the snapshot into the stream that a caller hands over
(`digest`).

Where to begin: `loader.load` reads a folder into a `Task` or raises an `errors.TaskError`; `rewards.judge`
turns what a verifier left behind into a verdict; `failures.FailureKind` is the closed set of what may go
wrong.
"""
