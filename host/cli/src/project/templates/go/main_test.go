package main

import (
	"testing"

	"outbox"
	"outbox/outboxtest"
)

func delivered(host *outboxtest.Host, payload string) error {
	return host.Deliver(outboxtest.NewEvent("{{aggregate_type}}", "{{event_type}}", payload))
}

func TestAMessageIsTaken(t *testing.T) {
	host := outboxtest.NewHost(t)
	if err := delivered(host, `{"message": "hello"}`); err != nil || len(host.Lines) != 1 {
		t.Error(err, host.Lines)
	}
}

func TestAnEmptyMessageIsNeverDeliveredAgain(t *testing.T) {
	if _, ok := delivered(outboxtest.NewHost(t), `{"message": ""}`).(*outbox.Death); !ok {
		t.Error("it is not dead")
	}
}

func TestWhatIsNoMessageIsNeverDeliveredAgain(t *testing.T) {
	failure, ok := delivered(outboxtest.NewHost(t), `{}`).(*outbox.Failure)
	if !ok || failure.Kind != outbox.KindUnrecoverable {
		t.Error(failure)
	}
}

func TestAnEndpointGetsTheEvent(t *testing.T) {
	host := outboxtest.NewHost(t)
	host.Config["endpoint"] = "https://hooks.example.com/"
	host.Respond = func(outbox.Request) (*outbox.Response, error) { return &outbox.Response{Status: 204}, nil }
	if err := delivered(host, `{"message": "hello"}`); err != nil || len(host.Requests) != 1 {
		t.Error(err, host.Requests)
	}
}
