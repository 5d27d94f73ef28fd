package outbox

import (
	"fmt"
	"strings"
	"time"
)

// Level is how much a line of the log matters.
type Level uint8

const (
	LevelTrace Level = iota
	LevelDebug
	LevelInfo
	LevelWarn
	LevelError
)

// String returns the level's name in capitals.
func (l Level) String() string {
	return [...]string{"TRACE", "DEBUG", "INFO", "WARN", "ERROR"}[l]
}

// Log writes one line to the host's log. Fields are names and values in turn, as for package log/slog. The host adds the
// plugin, its digest and the event's id, and drops lines below its level. Write no secrets.
func Log(level Level, message string, fields ...any) {
	if LogEnabled(level) {
		writeLog(level, message, pairsOf(fields))
	}
}

// LogEnabled says whether the host keeps lines of this level: lets a listener skip the work for a line that nobody would see.
func LogEnabled(level Level) bool {
	most, any := maxLevel()
	return any && level >= most
}

// Trace writes a line about every step.
func Trace(message string, fields ...any) { Log(LevelTrace, message, fields...) }

// Debug writes a line with details for finding a fault.
func Debug(message string, fields ...any) { Log(LevelDebug, message, fields...) }

// Info writes a line about what happened.
func Info(message string, fields ...any) { Log(LevelInfo, message, fields...) }

// Warn writes a line about something unexpected.
func Warn(message string, fields ...any) { Log(LevelWarn, message, fields...) }

// Error writes a line about something that failed.
func Error(message string, fields ...any) { Log(LevelError, message, fields...) }

func pairsOf(fields []any) Pairs {
	pairs := make(Pairs, 0, (len(fields)+1)/2)
	for len(fields) > 1 {
		pairs = append(pairs, Pair{fmt.Sprint(fields[0]), fmt.Sprint(fields[1])})
		fields = fields[2:]
	}
	if len(fields) == 1 {
		pairs = append(pairs, Pair{"!BADKEY", fmt.Sprint(fields[0])}) // what log/slog says of a value without a name
	}
	return pairs
}

// Setting returns the value under a key of [config] in the plugin's manifest, and whether there is one.
func Setting(key string) (value string, ok bool) {
	return setting(key)
}

// SettingOr returns the value under a key of [config], or the other value when it has no such key.
func SettingOr(key, otherwise string) string {
	if value, ok := setting(key); ok {
		return value
	}
	return otherwise
}

// Settings returns all of [config], sorted by key.
func Settings() Pairs {
	return settings()
}

// Secret returns the value under a key of [secrets] in the plugin's manifest, and whether there is one. The host blanks it out
// wherever it sees it in log lines and failures.
func Secret(key string) (value string, ok bool) {
	return secret(key)
}

// Remaining returns how much time is left until this call is cut off.
func Remaining() time.Duration {
	return time.Duration(remainingMs()) * time.Millisecond
}

// RefusalKind is why the host did not do what a listener asked of it.
type RefusalKind uint8

const (
	// NotGranted: the operator has not granted it; the message has the line to add to the plugin's manifest.
	NotGranted RefusalKind = iota
	// Invalid: the request itself is wrong; it will be wrong again.
	Invalid
	// OverLimit: a limit or a quota is used up.
	OverLimit
	// Unavailable: it did not work now, and may work later.
	Unavailable
)

// String returns the kind as the failure's code: "not-granted", "invalid", "over-limit" or "unavailable".
func (k RefusalKind) String() string {
	return [...]string{"not-granted", "invalid", "over-limit", "unavailable"}[k]
}

// Refusal is the error of Emit, Publish, HTTP and the state: the host did not do what the listener asked.
//
// A listener that returns it fails with the kind as the code. An invalid request is unrecoverable, since it will be refused
// again; every other refusal is retryable, since an operator or time can help.
type Refusal struct {
	Kind RefusalKind
	// Message is what was refused, why, and what to do; for people.
	Message string
}

// Error returns the message.
func (r *Refusal) Error() string {
	return r.Message
}

// Envelope is a follow-up event. What is left out takes the default.
type Envelope struct {
	// AggregateType and EventType are the route. Both are required.
	AggregateType, EventType string
	// AggregateID is the key for order: events of one aggregate can be delivered in order. Empty for none.
	AggregateID string
	// TenantID is empty for the tenant of the event that is being answered.
	TenantID string
	// ContentType is empty for "application/json".
	ContentType string
	Payload     []byte
	Headers     Pairs
	// ID is empty for an id that the host makes. An event whose id is in the outbox already is not emitted again.
	ID string
	// DeliverAfter counts from the commit, in whole milliseconds; 0 for at once.
	DeliverAfter time.Duration
	// ExpiresAfter counts from now, in whole milliseconds: nobody wants the event after that. 0 for never.
	ExpiresAfter time.Duration
	// Attributes are what a later host may understand; unknown keys are refused.
	Attributes Pairs
}

// Emit emits a follow-up event and returns its id. The event is committed together with the answer to the event that is being
// answered: both, or neither. Nothing is emitted by a call that ends with a failure. Needs "emit = true" in the plugin's
// manifest.
//
// The error is a *Refusal.
func Emit(envelope Envelope) (id string, err error) {
	return emit(envelope)
}

// Message is for a broker or an endpoint. What is left out takes the default.
type Message struct {
	// Subject is a subject, topic, stream, routing key or path, as the sink understands it; empty for the sink's own default.
	Subject string
	// Key keeps messages in order where the sink has partitions; empty for the aggregate id of the event.
	Key string
	// ContentType is empty for "application/json".
	ContentType string
	Body        []byte
	Headers     Pairs
	// Attributes are what a later host may understand; unknown keys are refused.
	Attributes Pairs
}

// Publish sends one message to a sink that the operator named, and waits until the sink has confirmed it. A message that was
// confirmed is out, whatever the listener answers afterwards. Needs the sink's name in "publish.sinks" of the plugin's
// manifest.
//
// The error is a *Refusal.
func Publish(sink string, message Message) error {
	return publish(sink, message)
}

// PublishAll sends messages together. It returns nil when all were sent, else one error for each message, nil for those that
// were sent; errors.Join makes one error of them.
func PublishAll(sink string, messages []Message) []error {
	return publishAll(sink, messages)
}

// The state: values that the plugin keeps in the outbox's database, by key, with a quota. Writes are committed together with
// the answer to the event: both, or neither. A key is 1 to 255 bytes of text. Needs "state = true" in the plugin's manifest.

// GetState returns the value under a key, and whether there is one. It sees what this call has written.
//
// The error is a *Refusal.
func GetState(key string) (value []byte, ok bool, err error) {
	return getState(key)
}

// SetState puts a value under a key.
//
// The error is a *Refusal.
func SetState(key string, value []byte) error {
	return setState(key, value)
}

// DeleteState removes a key, if it is there.
//
// The error is a *Refusal.
func DeleteState(key string) error {
	return deleteState(key)
}

// valid is the text with a replacement character for what is not UTF-8. The host ends a call with a trap when a string is not
// UTF-8, and a listener that quotes a broken payload in its reason should not end like that.
func valid(text string) string {
	return strings.ToValidUTF8(text, "\uFFFD")
}
