"""taskfold runs task folders on Kubernetes: agents in pods, verified rewards in the status of a TaskRun."""

__version__ = "0.1.0"
