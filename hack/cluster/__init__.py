"""The local test cluster: real Kubernetes programs in network namespaces, without Docker.

`python3 hack/cluster up` is the way in; `docs/local-cluster.md` describes it. Only the
standard library is used, so that a fresh machine needs no environment first.
"""
