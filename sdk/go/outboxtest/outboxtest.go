//go:build !wasip1

// Package outboxtest stands for the host in tests of plugins, which run natively.
//
//	func TestAnOrderAsksForItsPayment(t *testing.T) {
//		host := outboxtest.NewHost(t)
//		err := host.Deliver(outboxtest.NewEvent("Order", "OrderPlaced", `{"order_id": 42, "total": 99.5}`))
//		if err != nil || len(host.Emitted) != 1 {
//			t.Fatalf("answer %v, emitted %v", err, host.Emitted)
//		}
//	}
//
// Tests that use it must not run beside each other (t.Parallel): a program has one host.
package outboxtest

import (
	"fmt"
	"sort"
	"testing"
	"time"

	"outbox"
)

// Host answers what the listener asks of a host, and keeps what it did. Set its fields before a delivery, look at them after.
type Host struct {
	// Config and Secrets are what outbox.Setting and outbox.Secret find.
	Config, Secrets map[string]string
	// State is what the listener finds, and what it wrote. A real host forgets what a failed call wrote; this one shows it.
	State map[string][]byte
	// Refusal, when set, is the answer to whatever needs a grant: to emit, to publish, state, HTTP. At first everything is granted.
	Refusal *outbox.Refusal
	// Respond answers HTTP requests: it returns a response, or a *outbox.Refusal. Without it every request is refused as unavailable.
	Respond func(request outbox.Request) (*outbox.Response, error)
	// Level is the most detailed level that is kept. At first outbox.LevelTrace.
	Level outbox.Level
	// Remaining is how much time is left. At first 5 s.
	Remaining time.Duration

	// Emitted has the follow-up events of the last delivery. A real host forgets those of a failed call; this one shows them.
	Emitted []outbox.Envelope
	// Published has the messages of the last delivery.
	Published []Publication
	// Requests has the HTTP requests of the last delivery.
	Requests []outbox.Request
	// Lines has the log lines of the last delivery. They go to the test's log too.
	Lines []Line

	t testing.TB
}

// Publication is a message, and the sink that it was for.
type Publication struct {
	Sink    string
	Message outbox.Message
}

// Line is one line of the log.
type Line struct {
	Level   outbox.Level
	Message string
	Fields  outbox.Pairs
}

// NewHost makes a host, which stands until the test ends.
func NewHost(t testing.TB) *Host {
	host := &Host{
		Config:    map[string]string{},
		Secrets:   map[string]string{},
		State:     map[string][]byte{},
		Remaining: 5 * time.Second,
		t:         t,
	}
	before := outbox.SetHost(calls{host})
	t.Cleanup(func() { outbox.SetHost(before) })
	return host
}

// NewEvent makes a first delivery on this route, with this text as its payload. A test changes the result as it needs.
func NewEvent(aggregateType, eventType, payload string) *outbox.Event {
	return &outbox.Event{
		ID:          "01JD7ZS0000000000000000000",
		DeliveryID:  "01JD7ZS0000000000000000000:1",
		Route:       outbox.Route{AggregateType: aggregateType, EventType: eventType},
		OccurredAt:  time.UnixMilli(1_732_000_000_000).UTC(),
		Attempt:     1,
		ContentType: "application/json",
		Payload:     []byte(payload),
	}
}

// Deliver delivers the event to the plugin under test. It returns nil for an event that is finished, else an *outbox.Deferral, an
// *outbox.Death or an *outbox.Failure, as the host would see it.
func (h *Host) Deliver(event *outbox.Event) error {
	h.Emitted, h.Published, h.Requests, h.Lines = nil, nil, nil, nil
	return outbox.Deliver(event)
}

// DeliverAll delivers events in one call, as isolation = "batch" does. It returns for each, in order, what Deliver would.
func (h *Host) DeliverAll(events ...*outbox.Event) []error {
	h.Emitted, h.Published, h.Requests, h.Lines = nil, nil, nil, nil
	return outbox.DeliverAll(events)
}

// CheckSettings runs the plugin's own look at its settings, as a host does when it loads the plugin.
func (h *Host) CheckSettings() error {
	return outbox.CheckSettingsNow()
}

// calls are the methods that package outbox needs, kept off Host so that a test sees only what is for it.
type calls struct {
	host *Host
}

func (c calls) refusal() error {
	if c.host.Refusal == nil {
		return nil
	}
	return c.host.Refusal
}

func (c calls) MaxLevel() (outbox.Level, bool) {
	return c.host.Level, true
}

func (c calls) Log(level outbox.Level, message string, fields outbox.Pairs) {
	c.host.Lines = append(c.host.Lines, Line{level, message, fields})
	text := fmt.Sprintf("%v: %s", level, message)
	for _, field := range fields {
		text += fmt.Sprintf(" %s=%s", field.Name, field.Value)
	}
	c.host.t.Log(text)
}

func (c calls) Setting(key string) (string, bool) {
	value, ok := c.host.Config[key]
	return value, ok
}

func (c calls) Settings() outbox.Pairs {
	var pairs outbox.Pairs
	for key, value := range c.host.Config {
		pairs = append(pairs, outbox.Pair{Name: key, Value: value})
	}
	sort.Slice(pairs, func(i, j int) bool { return pairs[i].Name < pairs[j].Name })
	return pairs
}

func (c calls) Secret(key string) (string, bool) {
	value, ok := c.host.Secrets[key]
	return value, ok
}

func (c calls) RemainingMs() uint32 {
	return uint32(c.host.Remaining.Milliseconds())
}

func (c calls) Emit(envelope outbox.Envelope) (string, error) {
	if err := c.refusal(); err != nil {
		return "", err
	}
	c.host.Emitted = append(c.host.Emitted, envelope)
	if envelope.ID != "" {
		return envelope.ID, nil
	}
	return fmt.Sprintf("emitted-%d", len(c.host.Emitted)), nil
}

func (c calls) Publish(sink string, message outbox.Message) error {
	if err := c.refusal(); err != nil {
		return err
	}
	c.host.Published = append(c.host.Published, Publication{sink, message})
	return nil
}

func (c calls) HTTP(request outbox.Request) (*outbox.Response, error) {
	if err := c.refusal(); err != nil {
		return nil, err
	}
	c.host.Requests = append(c.host.Requests, request)
	if c.host.Respond == nil {
		return nil, &outbox.Refusal{Kind: outbox.Unavailable, Message: "a test says what answers HTTP requests, in Respond of its host"}
	}
	return c.host.Respond(request)
}

func (c calls) GetState(key string) ([]byte, bool, error) {
	if err := c.refusal(); err != nil {
		return nil, false, err
	}
	value, ok := c.host.State[key]
	return value, ok, nil
}

func (c calls) SetState(key string, value []byte) error {
	if err := c.refusal(); err != nil {
		return err
	}
	c.host.State[key] = append([]byte{}, value...)
	return nil
}

func (c calls) DeleteState(key string) error {
	if err := c.refusal(); err != nil {
		return err
	}
	delete(c.host.State, key)
	return nil
}
