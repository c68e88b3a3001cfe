"""From a run, its task and the settings to manifests, phase requests and documents: pure functions, plain data."""
