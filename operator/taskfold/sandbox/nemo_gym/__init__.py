"""The part of `nemo_gym` that verifiers in a sandbox may import: `nemo_gym.verifiers`, and nothing else."""
