//go:build wasip1

// Package export_outbox_listener_handler is what the generated exports call, under the name that they expect. It passes the calls on to
// the SDK, which cannot be imported from here, since it imports the exports.
package export_outbox_listener_handler

import (
	"outbox/internal/bindings/imports/outbox_listener_types"
	"outbox/internal/wit/runtime"
	"outbox/internal/wit/types"
)

// Set by package outbox when it is initialized.
var (
	Describe func() outbox_listener_types.Description
	Answer   func(outbox_listener_types.Event) wit_types.Result[outbox_listener_types.DispatchResult, outbox_listener_types.Failure]
)

// OnEvent answers one delivery. What the event points to is the host's writing, and is copied at once.
func OnEvent(event outbox_listener_types.Event) wit_types.Result[outbox_listener_types.DispatchResult, outbox_listener_types.Failure] {
	wit_runtime.BeginCall()
	defer wit_runtime.EndCall()
	return Answer(event)
}
