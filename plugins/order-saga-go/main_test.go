package main

import (
	"reflect"
	"testing"

	"outbox"
	"outbox/outboxtest"
)

func TestAPlacedOrderAsksForItsPayment(t *testing.T) {
	host := outboxtest.NewHost(t)
	host.Config["currency"] = "SEK"

	err := host.Deliver(outboxtest.NewEvent("Order", "OrderPlaced", `{"order_id": 42, "total": 99.5, "lines": []}`))

	want := []outbox.Envelope{{
		AggregateType: "Payment",
		EventType:     "PaymentRequested",
		AggregateID:   "42",
		ContentType:   "application/json",
		Payload:       []byte(`{"order_id":42,"amount":99.5,"currency":"SEK"}`),
		Headers:       outbox.Pairs{{Name: "caused-by", Value: "01JD7ZS0000000000000000000"}},
	}}
	if err != nil || !reflect.DeepEqual(host.Emitted, want) {
		t.Errorf("answer %v, emitted %+v", err, host.Emitted)
	}
}

func TestAFailedPaymentRejectsItsOrder(t *testing.T) {
	host := outboxtest.NewHost(t)

	err := host.Deliver(outboxtest.NewEvent("Payment", "PaymentFailed", `{"order_id": 42, "reason": "card expired"}`))

	if err != nil || len(host.Emitted) != 1 {
		t.Fatalf("answer %v, emitted %+v", err, host.Emitted)
	}
	next := host.Emitted[0]
	if next.AggregateType != "Order" || next.EventType != "OrderRejected" || next.AggregateID != "42" ||
		string(next.Payload) != `{"order_id":42,"reason":"card expired"}` {
		t.Errorf("%+v", next)
	}
}

func TestAnOrderWithoutAnIDIsDead(t *testing.T) {
	host := outboxtest.NewHost(t)

	for _, err := range []error{
		host.Deliver(outboxtest.NewEvent("Order", "OrderPlaced", `{"total": 1}`)),
		host.Deliver(outboxtest.NewEvent("Payment", "PaymentFailed", `{}`)),
	} {
		if _, dead := err.(*outbox.Death); !dead || len(host.Emitted) != 0 {
			t.Errorf("answer %v, emitted %+v", err, host.Emitted)
		}
	}
}

func TestWhatIsNoOrderIsNotTriedAgain(t *testing.T) {
	host := outboxtest.NewHost(t)

	err := host.Deliver(outboxtest.NewEvent("Order", "OrderPlaced", `{"order_id": "42"}`))

	if failure, ok := err.(*outbox.Failure); !ok || failure.Kind != outbox.KindUnrecoverable {
		t.Errorf("answer %v", err)
	}
}

func TestWithoutTheGrantTheEventIsTriedAgain(t *testing.T) {
	host := outboxtest.NewHost(t)
	host.Refusal = &outbox.Refusal{Kind: outbox.NotGranted, Message: "not granted; add `emit = true` to the plugin's manifest"}

	err := host.Deliver(outboxtest.NewEvent("Order", "OrderPlaced", `{"order_id": 42, "total": 99.5}`))

	failure, ok := err.(*outbox.Failure)
	if !ok || failure.Kind != outbox.KindRetryable || failure.Code != "not-granted" || failure.Message != host.Refusal.Message {
		t.Errorf("answer %+v", err)
	}
}
