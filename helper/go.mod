module taskfold.dev/helper

go 1.26
