module batches-go

go 1.27

require outbox v0.0.0

replace outbox => ../../sdk/go
