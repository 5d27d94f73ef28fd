//go:build wasip1

// Package export_outbox_listener_batch_handler is what the generated export for many events calls, under the name that it expects. It passes
// the call on to the SDK. The export itself is made by package outbox/batch.
package export_outbox_listener_batch_handler

import (
	"outbox/internal/bindings/imports/outbox_listener_types"
	"outbox/internal/wit/runtime"
	"outbox/internal/wit/types"
)

// Answer is set by package outbox when it is initialized.
var Answer func([]outbox_listener_types.Event) []wit_types.Result[outbox_listener_types.DispatchResult, outbox_listener_types.Failure]

// OnEvents answers many deliveries. What the events point to is the host's writing, and is copied at once.
func OnEvents(events []outbox_listener_types.Event) []wit_types.Result[outbox_listener_types.DispatchResult, outbox_listener_types.Failure] {
	wit_runtime.BeginCall()
	defer wit_runtime.EndCall()
	return Answer(events)
}
