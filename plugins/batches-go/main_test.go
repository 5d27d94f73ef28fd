package main

import (
	"testing"

	"outbox"
	"outbox/outboxtest"
)

func TestEachEventOfACallHasItsOwnAnswer(t *testing.T) {
	host := outboxtest.NewHost(t)
	event := func(payload string) *outbox.Event { return outboxtest.NewEvent("Batches", "Do", payload) }

	answers := host.DeliverAll(event(`"count"`), event(`"done"`), event(`"fail"`), event(`7`))

	for i, want := range []string{"the event is dead: one of 4", "<nil>", "one of 4"} {
		if got := text(answers[i]); got != want {
			t.Errorf("answer %d is %q, not %q", i+1, got, want)
		}
	}
	if answers[3] == nil {
		t.Error("what is no text is refused")
	}
	if got := text(host.Deliver(event(`"count"`))); got != "the event is dead: alone" {
		t.Errorf("an event that comes alone: %q", got)
	}
}

func text(err error) string {
	if err == nil {
		return "<nil>"
	}
	return err.Error()
}
