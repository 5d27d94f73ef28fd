package outbox

import (
	"errors"
	"fmt"
	"time"
)

// MaxDelay is the longest delay that a listener can ask for. A longer one is cut to it.
const MaxDelay = 24 * time.Hour

// RetryAfter is the answer "not now": the event is delivered again after the delay, in whole milliseconds. Nothing failed, so
// this is not counted as an attempt, and what the listener emitted and wrote to its state is committed.
func RetryAfter(delay time.Duration) error {
	return &Deferral{After: delay}
}

// Deferral is the answer of RetryAfter. An error only in form: it says how the delivery ends.
type Deferral struct {
	After time.Duration
}

// Error says after how long the event comes again.
func (d *Deferral) Error() string {
	return fmt.Sprintf("deliver the event again after %v", d.After)
}

// Dead is the answer "never again". The reason is kept with the event, for people. What the listener emitted and wrote to its
// state is committed.
func Dead(format string, values ...any) error {
	return &Death{Reason: fmt.Sprintf(format, values...)}
}

// Death is the answer of Dead. An error only in form: it says how the delivery ends.
type Death struct {
	Reason string
}

// Error says why the event is dead.
func (d *Death) Error() string {
	return "the event is dead: " + d.Reason
}

// FailureKind is what follows a failure.
type FailureKind int

const (
	// KindRetryable is counted as an attempt; the event is delivered again when the host's retry policy says, until its last attempt.
	KindRetryable FailureKind = iota
	// KindRetryableAfter is counted as an attempt; the event is delivered again after Failure.After.
	KindRetryableAfter
	// KindUnrecoverable will never become a success: the event is dead.
	KindUnrecoverable
)

// Failure says that the listener could not do it. Nothing that it emitted or wrote to its state happened.
//
// Any error that is no answer of this package is a retryable Failure with the error's text; so is a Failure that says no more than
// its message.
type Failure struct {
	// Message is what went wrong, for people; kept with the event.
	Message string
	// Code is a short constant for metrics and filters, such as "payment-declined": 1 to 64 of a-z, 0-9 and dashes. Empty for none.
	Code string
	// Kind is what follows.
	Kind FailureKind
	// After is the delay of KindRetryableAfter, in whole milliseconds.
	After time.Duration
	// Details are for people; kept with the message as far as there is room.
	Details Pairs
	// Cause is the error behind this failure, if there is one. It is not shown again: the message already tells of it.
	Cause error
}

// Error returns the message.
func (f *Failure) Error() string {
	return f.Message
}

// Unwrap returns the cause.
func (f *Failure) Unwrap() error {
	return f.Cause
}

// RetryableAfter makes a failure that is counted and tried again after the delay. The text is made as by fmt.Errorf, %w included.
func RetryableAfter(delay time.Duration, format string, values ...any) error {
	err := fmt.Errorf(format, values...)
	return &Failure{Message: err.Error(), Kind: KindRetryableAfter, After: delay, Cause: err}
}

// Unrecoverable makes a failure that can never succeed: the event is dead. The text is made as by fmt.Errorf, %w included.
func Unrecoverable(format string, values ...any) error {
	err := fmt.Errorf(format, values...)
	return &Failure{Message: err.Error(), Kind: KindUnrecoverable, Cause: err}
}

// WithCode makes the same failure with a code, such as "payment-declined". A nil error stays nil, and so do RetryAfter and
// Dead, which have no place for a code.
func WithCode(err error, code string) error {
	return changed(err, func(failure *Failure) { failure.Code = code })
}

// WithDetail makes the same failure with one more detail, formatted as by fmt.Sprint.
func WithDetail(err error, name string, value any) error {
	return changed(err, func(failure *Failure) {
		details := append(Pairs(nil), failure.Details...)
		failure.Details = append(details, Pair{name, fmt.Sprint(value)})
	})
}

func changed(err error, change func(*Failure)) error {
	result := resultOf(err)
	if result.failure == nil {
		return err
	}
	failure := *result.failure
	failure.Cause = err
	change(&failure)
	return &failure
}

// result is what an error comes to: exactly one of the fields is set, or none for "done".
type result struct {
	deferral *Deferral
	death    *Death
	failure  *Failure
}

// answering is what the errors of this package that end a delivery have in common. Where several are wrapped in each other, the
// outermost one counts.
type answering interface {
	error
	// result is what the whole error, in which this one is wrapped, comes to.
	result(whole error) result
}

func (d *Deferral) result(error) result { return result{deferral: d} }

func (d *Death) result(error) result { return result{death: d} }

func (f *Failure) result(whole error) result {
	failure := *f
	failure.Message = whole.Error() // with what was put in front of it on its way
	return result{failure: &failure}
}

func (r *Refusal) result(whole error) result {
	failure := &Failure{Message: whole.Error(), Code: r.Kind.String(), Cause: whole}
	if r.Kind == Invalid {
		failure.Kind = KindUnrecoverable
	}
	return result{failure: failure}
}

func resultOf(err error) result {
	if err == nil {
		return result{}
	}
	if answer, ok := errors.AsType[answering](err); ok {
		return answer.result(err)
	}
	return result{failure: &Failure{Message: err.Error(), Cause: err}}
}

// delayMs cuts a delay to what the contract takes.
func delayMs(delay time.Duration) uint32 {
	return uint32(min(max(delay, 0), MaxDelay).Milliseconds())
}
