//go:build !wasip1

package outbox_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"outbox"
	"outbox/outboxtest"
)

// onThing is what the plugin under test does with an event; each test sets it.
var onThing outbox.Handler

func init() {
	outbox.Plugin("tested", "1.2.3")
	outbox.Handle("Thing", "Happened", func(event *outbox.Event) error { return onThing(event) })
	outbox.HandleJSON("Thing", "Counted", func(event *outbox.Event, count map[string]int) error {
		if count["n"] < 0 {
			return outbox.Dead("%d is below zero", count["n"])
		}
		return nil
	})
}

// answerTo is what the host sees when the listener returns this.
func answerTo(t *testing.T, returned error) error {
	t.Helper()
	onThing = func(*outbox.Event) error { return returned }
	return outboxtest.NewHost(t).Deliver(outboxtest.NewEvent("Thing", "Happened", ""))
}

func failureOf(t *testing.T, err error) *outbox.Failure {
	t.Helper()
	failure, ok := err.(*outbox.Failure)
	if !ok {
		t.Fatalf("%T %v is not a failure", err, err)
	}
	return failure
}

func TestThePluginDescribesItself(t *testing.T) {
	want := outbox.Description{Name: "tested", Version: "1.2.3", Routes: []outbox.Route{
		{"Many", "Happened"}, {"Many", "Both"}, {"Many", "Single"}, {"Thing", "Happened"}, {"Thing", "Counted"},
	}}
	if got := outbox.Describe(); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
}

func TestARouteHasOneHandler(t *testing.T) {
	defer func() {
		if reason := recover(); reason != "outbox: Thing/Happened has two handlers" {
			t.Error(reason)
		}
	}()
	outbox.Handle("Thing", "Happened", func(*outbox.Event) error { return nil })
}

func TestNilFinishesTheEvent(t *testing.T) {
	if err := answerTo(t, nil); err != nil {
		t.Error(err)
	}
}

func TestAnAnswerMayBeWrapped(t *testing.T) {
	deferral, ok := answerTo(t, fmt.Errorf("not yet: %w", outbox.RetryAfter(time.Minute))).(*outbox.Deferral)
	if !ok || deferral.After != time.Minute {
		t.Error(deferral)
	}
	death, ok := answerTo(t, fmt.Errorf("checking: %w", outbox.Dead("order %d is void", 7))).(*outbox.Death)
	if !ok || death.Reason != "order 7 is void" {
		t.Error(death)
	}
	failure := failureOf(t, answerTo(t, fmt.Errorf("charging: %w", outbox.Unrecoverable("no shop %d", 7))))
	if failure.Kind != outbox.KindUnrecoverable || failure.Message != "charging: no shop 7" {
		t.Errorf("%+v", failure)
	}
	// Where several are wrapped in each other, the outermost one counts.
	failure = failureOf(t, answerTo(t, outbox.Unrecoverable("giving up: %w", outbox.RetryAfter(time.Minute))))
	if failure.Kind != outbox.KindUnrecoverable {
		t.Errorf("%+v", failure)
	}
}

func TestAnyErrorIsARetryableFailure(t *testing.T) {
	failure := failureOf(t, answerTo(t, errors.New("connection refused")))
	if failure.Kind != outbox.KindRetryable || failure.Message != "connection refused" || failure.Code != "" {
		t.Errorf("%+v", failure)
	}
}

func TestAFailureHasACodeAndDetails(t *testing.T) {
	err := outbox.RetryableAfter(1500*time.Millisecond, "declined by %s", "the bank")
	err = outbox.WithDetail(outbox.WithDetail(outbox.WithCode(err, "payment-declined"), "bank", 17), "try", "again")
	failure := failureOf(t, answerTo(t, err))
	if failure.Kind != outbox.KindRetryableAfter || failure.After != 1500*time.Millisecond || failure.Code != "payment-declined" ||
		failure.Message != "declined by the bank" || !reflect.DeepEqual(failure.Details, outbox.Pairs{{"bank", "17"}, {"try", "again"}}) {
		t.Errorf("%+v", failure)
	}
	if err := outbox.WithCode(nil, "x"); err != nil {
		t.Error(err)
	}
	if err := answerTo(t, outbox.WithCode(outbox.Dead("why"), "x")); err.(*outbox.Death).Reason != "why" {
		t.Error(err)
	}
}

func TestAPanicIsARetryableFailure(t *testing.T) {
	host := outboxtest.NewHost(t)
	onThing = func(event *outbox.Event) error { panic(event.Payload[0]) } // out of range
	failure := failureOf(t, host.Deliver(outboxtest.NewEvent("Thing", "Happened", "")))
	if failure.Kind != outbox.KindRetryable || failure.Code != "panic" || !strings.Contains(failure.Message, "index out of range") {
		t.Errorf("%+v", failure)
	}
	if len(host.Lines) != 1 || host.Lines[0].Level != outbox.LevelError {
		t.Error(host.Lines)
	}
	if stack, _ := host.Lines[0].Fields.Get("stack"); !strings.Contains(stack, "TestAPanic") {
		t.Error(stack)
	}
}

func TestAnUnknownRouteIsUnrecoverable(t *testing.T) {
	failure := failureOf(t, outboxtest.NewHost(t).Deliver(outboxtest.NewEvent("Thing", "Unheard", "")))
	if failure.Kind != outbox.KindUnrecoverable || failure.Message != "this plugin does not answer Thing/Unheard" {
		t.Errorf("%+v", failure)
	}
}

func TestAPayloadThatDoesNotParseIsUnrecoverable(t *testing.T) {
	host := outboxtest.NewHost(t)
	if err := host.Deliver(outboxtest.NewEvent("Thing", "Counted", `{"n": 1}`)); err != nil {
		t.Error(err)
	}
	if err := host.Deliver(outboxtest.NewEvent("Thing", "Counted", `{"n": -1}`)); err.(*outbox.Death).Reason != "-1 is below zero" {
		t.Error(err)
	}
	failure := failureOf(t, host.Deliver(outboxtest.NewEvent("Thing", "Counted", `{"n": "one"}`)))
	if failure.Kind != outbox.KindUnrecoverable ||
		!strings.HasPrefix(failure.Message, "invalid payload: ") {
		t.Errorf("%+v", failure)
	}
}

func TestAPayloadThatIsNestedTooDeeplyIsUnrecoverable(t *testing.T) {
	host := outboxtest.NewHost(t)
	flat := `{"n": 1` + strings.Repeat(` `, 5000) + `, "` + strings.Repeat(`[\"`, 5000) + `": 2}`
	if err := host.Deliver(outboxtest.NewEvent("Thing", "Counted", flat)); err != nil {
		t.Error(err)
	}
	failure := failureOf(t, host.Deliver(outboxtest.NewEvent("Thing", "Counted", strings.Repeat(`[`, 1001))))
	if failure.Kind != outbox.KindUnrecoverable || failure.Message != "invalid payload: it is nested deeper than 1000 levels" {
		t.Errorf("%+v", failure)
	}
}

func TestARefusalIsAFailureWithItsKindAsTheCode(t *testing.T) {
	for kind, want := range map[outbox.RefusalKind]outbox.FailureKind{
		outbox.NotGranted:  outbox.KindRetryable,
		outbox.Invalid:     outbox.KindUnrecoverable,
		outbox.OverLimit:   outbox.KindRetryable,
		outbox.Unavailable: outbox.KindRetryable,
	} {
		host := outboxtest.NewHost(t)
		host.Refusal = &outbox.Refusal{Kind: kind, Message: "add `emit = true`"}
		for name, ask := range map[string]func() error{
			"emit":    func() error { _, err := outbox.Emit(outbox.Envelope{}); return err },
			"publish": func() error { return outbox.Publish("orders", outbox.Message{}) },
			"all":     func() error { return errors.Join(outbox.PublishAll("orders", make([]outbox.Message, 1))...) },
			"get":     func() error { _, _, err := outbox.GetState("key"); return err },
			"set":     func() error { return outbox.SetState("key", nil) },
			"delete":  func() error { return outbox.DeleteState("key") },
		} {
			onThing = func(*outbox.Event) error {
				if err := ask(); err != nil {
					return fmt.Errorf("asking: %w", err)
				}
				return nil
			}
			failure := failureOf(t, host.Deliver(outboxtest.NewEvent("Thing", "Happened", "")))
			if failure.Kind != want || failure.Code != kind.String() || failure.Message != "asking: add `emit = true`" {
				t.Errorf("%s: %+v", name, failure)
			}
		}
	}
}

func TestTheHostIsAsked(t *testing.T) {
	host := outboxtest.NewHost(t)
	host.Config["currency"] = "SEK"
	host.Config["empty"] = ""
	host.Secrets["token"] = "s3cret"
	host.Level = outbox.LevelInfo
	onThing = func(event *outbox.Event) error {
		outbox.Debug("nobody sees this")
		outbox.Info("seen", "order", 42, "odd")
		if value, ok := outbox.Setting("empty"); value != "" || !ok {
			t.Error(value, ok)
		}
		if _, ok := outbox.Setting("absent"); ok || outbox.SettingOr("absent", "EUR") != "EUR" || outbox.SettingOr("currency", "EUR") != "SEK" {
			t.Error("settings")
		}
		if len(outbox.Settings()) != 2 || outbox.Remaining() != 5*time.Second {
			t.Error(outbox.Settings(), outbox.Remaining())
		}
		if value, ok := outbox.Secret("token"); value != "s3cret" || !ok {
			t.Error(value, ok)
		}
		if id, err := outbox.Emit(outbox.Envelope{AggregateType: "A", EventType: "B", Payload: []byte("x")}); id != "emitted-1" || err != nil {
			t.Error(id, err)
		}
		if errs := outbox.PublishAll("orders", []outbox.Message{{Subject: "s"}, {ContentType: "text/plain"}}); errs != nil {
			t.Error(errs)
		}
		count, ok, err := outbox.GetState("count")
		if ok || err != nil {
			t.Error(count, ok, err)
		}
		return errors.Join(outbox.SetState("count", append(count, '1')), outbox.SetState("gone", nil), outbox.DeleteState("gone"))
	}
	if err := host.Deliver(outboxtest.NewEvent("Thing", "Happened", "")); err != nil {
		t.Error(err)
	}
	if len(host.Lines) != 1 || host.Lines[0].Message != "seen" ||
		!reflect.DeepEqual(host.Lines[0].Fields, outbox.Pairs{{"order", "42"}, {"!BADKEY", "odd"}}) {
		t.Error(host.Lines)
	}
	if len(host.Emitted) != 1 || host.Emitted[0].ContentType != "application/json" {
		t.Error(host.Emitted)
	}
	if len(host.Published) != 2 || host.Published[1].Message.ContentType != "text/plain" {
		t.Error(host.Published)
	}
	if len(host.State) != 1 || string(host.State["count"]) != "1" {
		t.Error(host.State)
	}
}

func TestHeadersAreFoundByTheirExactName(t *testing.T) {
	event := outboxtest.NewEvent("Thing", "Happened", "")
	event.Headers = outbox.Pairs{{"trace", "1"}, {"trace", "2"}}
	if event.Header("trace") != "1" || event.Header("Trace") != "" || event.Attribute("trace") != "" {
		t.Error(event.Headers)
	}
}
