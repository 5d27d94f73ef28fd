module {{name}}

go 1.27

require outbox v0.0.0

replace outbox => ./outbox-sdk
