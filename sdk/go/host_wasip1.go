package outbox

import (
	"bytes"
	"math"
	"strings"
	"time"

	"outbox/internal/bindings/exports/export_outbox_listener_batch_handler"
	"outbox/internal/bindings/exports/export_outbox_listener_handler"
	"outbox/internal/bindings/exports/export_outbox_listener_settings_check"
	_ "outbox/internal/bindings/exports/wit_exports" // exports what the host calls
	"outbox/internal/bindings/imports/outbox_listener_call"
	"outbox/internal/bindings/imports/outbox_listener_emit"
	"outbox/internal/bindings/imports/outbox_listener_http"
	"outbox/internal/bindings/imports/outbox_listener_log"
	"outbox/internal/bindings/imports/outbox_listener_publish"
	"outbox/internal/bindings/imports/outbox_listener_settings"
	"outbox/internal/bindings/imports/outbox_listener_state"
	"outbox/internal/bindings/imports/outbox_listener_types"
	"outbox/internal/wit/runtime"
	"outbox/internal/wit/types"
)

// The bridge to the host. What the host writes lies in the arena of package wit_runtime; every function here copies it.

func init() {
	export_outbox_listener_handler.Describe = describeToHost
	export_outbox_listener_handler.Answer = answerToHost
	export_outbox_listener_batch_handler.Answer = answersToHost
	export_outbox_listener_settings_check.Check = complaintToHost
}

// hostResult is an answer as the host reads it.
type hostResult = wit_types.Result[outbox_listener_types.DispatchResult, outbox_listener_types.Failure]

// level is the host's level, once a line was to be written in this call.
var level struct {
	asked, any bool
	most       Level
}

func describeToHost() outbox_listener_types.Description {
	description := Describe()
	routes := make([]outbox_listener_types.Route, len(description.Routes))
	for i, route := range description.Routes {
		routes[i] = outbox_listener_types.Route{AggregateType: valid(route.AggregateType), EventType: valid(route.EventType)}
	}
	return outbox_listener_types.Description{Name: valid(description.Name), Version: valid(description.Version), Routes: routes}
}

func answerToHost(given outbox_listener_types.Event) hostResult {
	level.asked = false
	event := eventOf(given)
	wit_runtime.ArgumentsCopied()
	return resultToHost(answer(event))
}

func answersToHost(given []outbox_listener_types.Event) []hostResult {
	level.asked = false
	events := make([]*Event, len(given))
	for i := range given {
		events[i] = eventOf(given[i])
	}
	wit_runtime.ArgumentsCopied()
	results := make([]hostResult, len(events))
	for i, err := range answerAll(events) {
		results[i] = resultToHost(err)
	}
	return results
}

// eventOf copies the host's writing.
func eventOf(given outbox_listener_types.Event) *Event {
	return &Event{
		ID:          strings.Clone(given.Id),
		DeliveryID:  strings.Clone(given.DeliveryId),
		Route:       Route{strings.Clone(given.Route.AggregateType), strings.Clone(given.Route.EventType)},
		AggregateID: strings.Clone(given.AggregateId.SomeOr("")),
		TenantID:    strings.Clone(given.TenantId.SomeOr("")),
		Sequence:    given.Sequence,
		OccurredAt:  time.UnixMilli(int64(min(given.OccurredAtMs, math.MaxInt64))).UTC(),
		Attempt:     given.Attempt,
		ContentType: strings.Clone(given.ContentType),
		Payload:     bytes.Clone(given.Payload),
		Headers:     clonePairs(given.Headers),
		Attributes:  clonePairs(given.Attributes),
	}
}

func resultToHost(err error) hostResult {
	result := resultOf(err)
	switch {
	case result.deferral != nil:
		return ok(outbox_listener_types.MakeDispatchResultRetryAfter(delayMs(result.deferral.After)))
	case result.death != nil:
		return ok(outbox_listener_types.MakeDispatchResultDead(someUnlessEmpty(result.death.Reason)))
	case result.failure != nil:
		failure := result.failure
		return wit_types.Err[outbox_listener_types.DispatchResult](outbox_listener_types.Failure{
			Message:    valid(failure.Message),
			Code:       someUnlessEmpty(failure.Code),
			Kind:       kindOf(failure),
			Attributes: lendPairs(failure.Details),
		})
	default:
		return ok(outbox_listener_types.MakeDispatchResultDone())
	}
}

func complaintToHost() string {
	level.asked = false
	if err := settingsComplaint(); err != nil {
		return valid(err.Error())
	}
	return ""
}

func ok(result outbox_listener_types.DispatchResult) hostResult {
	return wit_types.Ok[outbox_listener_types.DispatchResult, outbox_listener_types.Failure](result)
}

func kindOf(failure *Failure) outbox_listener_types.FailureKind {
	switch failure.Kind {
	case KindRetryableAfter:
		return outbox_listener_types.MakeFailureKindRetryableAfter(delayMs(failure.After))
	case KindUnrecoverable:
		return outbox_listener_types.MakeFailureKindUnrecoverable()
	default: // also a kind that this package does not know: a retry loses nothing
		return outbox_listener_types.MakeFailureKindRetryable()
	}
}

func clonePairs(given []wit_types.Tuple2[string, string]) Pairs {
	pairs := make(Pairs, len(given))
	for i, pair := range given {
		pairs[i] = Pair{strings.Clone(pair.F0), strings.Clone(pair.F1)}
	}
	return pairs
}

func lendPairs(pairs Pairs) []wit_types.Tuple2[string, string] {
	lent := make([]wit_types.Tuple2[string, string], len(pairs))
	for i, pair := range pairs {
		lent[i] = wit_types.Tuple2[string, string]{F0: valid(pair.Name), F1: valid(pair.Value)}
	}
	return lent
}

func someUnlessEmpty(text string) wit_types.Option[string] {
	if text == "" {
		return wit_types.None[string]()
	}
	return wit_types.Some(valid(text))
}

func refusalOf(refusal outbox_listener_types.Refusal) error {
	return &Refusal{Kind: RefusalKind(refusal.Kind), Message: strings.Clone(refusal.Message)}
}

func maxLevel() (Level, bool) {
	if !level.asked {
		wit_runtime.BeginReading()
		defer wit_runtime.EndReading()
		most := outbox_listener_log.MaxLevel()
		level.asked, level.any = true, most.IsSome()
		level.most = Level(most.SomeOr(0))
	}
	return level.most, level.any
}

func writeLog(level Level, message string, fields Pairs) {
	outbox_listener_log.Write(uint8(min(level, LevelError)), valid(message), lendPairs(fields))
}

func setting(key string) (string, bool) {
	wit_runtime.BeginReading()
	defer wit_runtime.EndReading()
	value := outbox_listener_settings.Get(valid(key))
	return strings.Clone(value.SomeOr("")), value.IsSome()
}

func settings() Pairs {
	wit_runtime.BeginReading()
	defer wit_runtime.EndReading()
	return clonePairs(outbox_listener_settings.GetAll())
}

func secret(key string) (string, bool) {
	wit_runtime.BeginReading()
	defer wit_runtime.EndReading()
	value := outbox_listener_settings.Secret(valid(key))
	return strings.Clone(value.SomeOr("")), value.IsSome()
}

func remainingMs() uint32 {
	return outbox_listener_call.RemainingMs()
}

func emit(envelope Envelope) (string, error) {
	wit_runtime.BeginReading()
	defer wit_runtime.EndReading()
	answer := outbox_listener_emit.Emit(outbox_listener_emit.Envelope{
		Route:          outbox_listener_types.Route{AggregateType: valid(envelope.AggregateType), EventType: valid(envelope.EventType)},
		AggregateId:    someUnlessEmpty(envelope.AggregateID),
		TenantId:       someUnlessEmpty(envelope.TenantID),
		ContentType:    contentType(envelope.ContentType),
		Payload:        envelope.Payload,
		Headers:        lendPairs(envelope.Headers),
		Id:             someUnlessEmpty(envelope.ID),
		DeliverAfterMs: someUnlessZero(envelope.DeliverAfter),
		ExpiresAfterMs: someUnlessZero(envelope.ExpiresAfter),
		Attributes:     lendPairs(envelope.Attributes),
	})
	if answer.IsErr() {
		return "", refusalOf(answer.Err())
	}
	return strings.Clone(answer.Ok()), nil
}

func contentType(given string) string {
	if given == "" {
		return "application/json"
	}
	return valid(given)
}

// A delay below a millisecond is one: none would mean "at once", and "never".
func someUnlessZero(delay time.Duration) wit_types.Option[uint32] {
	if delay <= 0 {
		return wit_types.None[uint32]()
	}
	return wit_types.Some(uint32(min(max(delay.Milliseconds(), 1), math.MaxUint32)))
}

func lendMessage(message Message) outbox_listener_publish.Message {
	return outbox_listener_publish.Message{
		Subject:     valid(message.Subject),
		Key:         someUnlessEmpty(message.Key),
		ContentType: contentType(message.ContentType),
		Body:        message.Body,
		Headers:     lendPairs(message.Headers),
		Attributes:  lendPairs(message.Attributes),
	}
}

func publish(sink string, message Message) error {
	wit_runtime.BeginReading()
	defer wit_runtime.EndReading()
	answer := outbox_listener_publish.Send(valid(sink), lendMessage(message))
	if answer.IsErr() {
		return refusalOf(answer.Err())
	}
	return nil
}

func publishAll(sink string, messages []Message) []error {
	wit_runtime.BeginReading()
	defer wit_runtime.EndReading()
	lent := make([]outbox_listener_publish.Message, len(messages))
	for i, message := range messages {
		lent[i] = lendMessage(message)
	}
	var errs []error
	for i, answer := range outbox_listener_publish.SendAll(valid(sink), lent) {
		if answer.IsErr() {
			if errs == nil {
				errs = make([]error, len(messages))
			}
			errs[i] = refusalOf(answer.Err())
		}
	}
	return errs
}

func sendHTTP(request Request) (*Response, error) {
	wit_runtime.BeginReading()
	defer wit_runtime.EndReading()
	answer := outbox_listener_http.Send(outbox_listener_http.Request{
		Method:     valid(request.Method),
		Url:        valid(request.URL),
		Headers:    lendPairs(request.Headers),
		Body:       request.Body,
		TimeoutMs:  someUnlessZero(request.Timeout),
		Attributes: lendPairs(request.Attributes),
	})
	if answer.IsErr() {
		return nil, refusalOf(answer.Err())
	}
	response := answer.Ok()
	return &Response{
		Status:  int(response.Status),
		Headers: clonePairs(response.Headers),
		Body:    bytes.Clone(response.Body),
	}, nil
}

func getState(key string) ([]byte, bool, error) {
	wit_runtime.BeginReading()
	defer wit_runtime.EndReading()
	answer := outbox_listener_state.Get(valid(key))
	if answer.IsErr() {
		return nil, false, refusalOf(answer.Err())
	}
	value := answer.Ok()
	return bytes.Clone(value.SomeOr(nil)), value.IsSome(), nil
}

func setState(key string, value []byte) error {
	wit_runtime.BeginReading()
	defer wit_runtime.EndReading()
	answer := outbox_listener_state.Set(valid(key), value)
	if answer.IsErr() {
		return refusalOf(answer.Err())
	}
	return nil
}

func deleteState(key string) error {
	wit_runtime.BeginReading()
	defer wit_runtime.EndReading()
	answer := outbox_listener_state.Delete(valid(key))
	if answer.IsErr() {
		return refusalOf(answer.Err())
	}
	return nil
}
