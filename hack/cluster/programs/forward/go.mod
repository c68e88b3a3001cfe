module taskfold.dev/hack/cluster/forward

go 1.26.0
