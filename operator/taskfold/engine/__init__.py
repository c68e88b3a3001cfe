"""The running operator: watches, the work queue, the reconcile, and everything that lives as long as the process."""
