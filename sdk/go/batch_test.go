//go:build !wasip1

package outbox_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"outbox"
	"outbox/batch"
	"outbox/outboxtest"
)

// onMany is what the plugin under test does with many events; each test sets it.
var onMany outbox.BatchHandler

func init() {
	many := func(events []*outbox.Event) ([]error, error) { return onMany(events) }
	batch.Handle("Many", "Happened", many)
	batch.Handle("Many", "Both", many)
	outbox.Handle("Many", "Both", func(*outbox.Event) error { return errors.New("alone") })
	outbox.Handle("Many", "Single", func(*outbox.Event) error { return errors.New("alone") })
}

// delivered says what each of the events came to, in one call.
func delivered(t *testing.T, types ...string) []string {
	t.Helper()
	var events []*outbox.Event
	for _, eventType := range types {
		events = append(events, outboxtest.NewEvent("Many", eventType, ""))
	}
	var answers []string
	for _, err := range outboxtest.NewHost(t).DeliverAll(events...) {
		answers = append(answers, fmt.Sprint(err))
	}
	return answers
}

func expect(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, expected %q", got, want)
	}
}

func TestNeighboursOfOneRouteGoTogetherAndTheOthersAlone(t *testing.T) {
	onMany = func(events []*outbox.Event) ([]error, error) {
		answers := make([]error, len(events))
		for i := range answers {
			answers[i] = fmt.Errorf("%d of %d", i, len(events))
		}
		return answers, nil
	}
	expect(t, delivered(t, "Happened", "Happened", "Single", "Single", "Happened", "Both", "Both", "Unheard"),
		"0 of 2", "1 of 2", "alone", "alone", "0 of 1", "0 of 2", "1 of 2", "this plugin does not answer Many/Unheard")
	expect(t, delivered(t))
}

func TestEveryEventHasItsOwnAnswerAndNoAnswersMeanThatAllAreFinished(t *testing.T) {
	onMany = func(events []*outbox.Event) ([]error, error) {
		return []error{nil, outbox.Unrecoverable("no"), outbox.RetryAfter(0)}, nil
	}
	answers := outboxtest.NewHost(t).DeliverAll(
		outboxtest.NewEvent("Many", "Happened", ""), outboxtest.NewEvent("Many", "Happened", ""), outboxtest.NewEvent("Many", "Happened", ""))
	if answers[0] != nil || failureOf(t, answers[1]).Kind != outbox.KindUnrecoverable {
		t.Error(answers)
	}
	if _, deferred := answers[2].(*outbox.Deferral); !deferred {
		t.Error(answers)
	}
	onMany = func([]*outbox.Event) ([]error, error) { return nil, nil }
	expect(t, delivered(t, "Happened", "Happened"), "<nil>", "<nil>")
}

func TestABatchThatFailsPanicsOrReturnsTooFewAnswersFailsItsOwnEventsAndNoOther(t *testing.T) {
	onMany = func([]*outbox.Event) ([]error, error) { return nil, errors.New("down") }
	expect(t, delivered(t, "Happened", "Happened", "Single"), "down", "down", "alone")

	onMany = func([]*outbox.Event) ([]error, error) { panic("as asked") }
	expect(t, delivered(t, "Happened", "Single", "Happened"), "the listener panicked: as asked", "alone", "the listener panicked: as asked")

	onMany = func(events []*outbox.Event) ([]error, error) { return make([]error, len(events)-1), nil }
	got := delivered(t, "Happened", "Happened")
	if got[0] != got[1] || !strings.Contains(got[0], "Many/Happened got 2 events and returned 1 answers") {
		t.Error(got)
	}
}

func TestAnEventThatComesAloneGoesToItsOwnHandlerOrElseToTheBatch(t *testing.T) {
	onMany = func(events []*outbox.Event) ([]error, error) { return nil, fmt.Errorf("%d event", len(events)) }
	host := outboxtest.NewHost(t)
	if err := host.Deliver(outboxtest.NewEvent("Many", "Both", "")); fmt.Sprint(err) != "alone" {
		t.Error(err)
	}
	if err := host.Deliver(outboxtest.NewEvent("Many", "Happened", "")); fmt.Sprint(err) != "1 event" {
		t.Error(err)
	}
}

func TestAMessageSaysForWhichEventItIs(t *testing.T) {
	onMany = func(events []*outbox.Event) ([]error, error) {
		return nil, outbox.Publish("orders", outbox.Message{Attributes: outbox.ForEvent(events[1])})
	}
	first, second := outboxtest.NewEvent("Many", "Happened", ""), outboxtest.NewEvent("Many", "Happened", "")
	second.ID = "another"
	host := outboxtest.NewHost(t)
	host.DeliverAll(first, second)
	if id, _ := host.Published[0].Message.Attributes.Get("event-id"); id != "another" {
		t.Error(host.Published)
	}
}

func TestARouteHasOneBatchHandlerAndIsListedOnce(t *testing.T) {
	listed := 0
	for _, route := range outbox.Describe().Routes {
		if route == (outbox.Route{"Many", "Both"}) {
			listed++
		}
	}
	if listed != 1 {
		t.Error(outbox.Describe())
	}
	defer func() {
		if reason := recover(); reason != "outbox: Many/Happened has two batch handlers" {
			t.Error(reason)
		}
	}()
	batch.Handle("Many", "Happened", onMany)
}
