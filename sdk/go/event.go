package outbox

import "time"

// Event is one delivery of one event.
type Event struct {
	// ID is the same on every delivery: the key for deduplication.
	ID string
	// DeliveryID is "id:fence", with a larger fence on every delivery: lets a downstream refuse a late one.
	DeliveryID string
	// Route is the aggregate type and the event type.
	Route Route
	// AggregateID is the aggregate's id: which thing it happened to; empty if the writer gave none.
	AggregateID string
	// TenantID is the tenant that the event belongs to; empty if the writer gave none.
	TenantID string
	// Sequence is the order in which the database took the events in; 0 for an event that was never stored.
	Sequence uint64
	// OccurredAt is when it happened, in whole milliseconds, in UTC.
	OccurredAt time.Time
	// Attempt is 1 on the first attempt; one more after each counted failure.
	Attempt uint32
	// ContentType is "application/json" unless the writer said otherwise.
	ContentType string
	// Payload has the bytes exactly as the writer wrote them.
	Payload []byte
	// Headers are the writer's, in the writer's order.
	Headers Pairs
	// Attributes are the host's own notes, such as "max-attempts" and "traceparent". Later hosts may add more.
	Attributes Pairs
}

// Header returns the first header of exactly this name; empty when there is none.
func (e *Event) Header(name string) string {
	value, _ := e.Headers.Get(name)
	return value
}

// Attribute returns the host's note under exactly this key; empty when there is none.
func (e *Event) Attribute(key string) string {
	value, _ := e.Attributes.Get(key)
	return value
}

// Pair is a name and its value: a header, an attribute, a detail, a field of a log line.
type Pair struct {
	Name, Value string
}

// Pairs are pairs in order; a name may come more than once.
type Pairs []Pair

// Get returns the value of the first pair of exactly this name, and whether there is one.
func (p Pairs) Get(name string) (value string, ok bool) {
	for _, pair := range p {
		if pair.Name == name {
			return pair.Value, true
		}
	}
	return "", false
}
