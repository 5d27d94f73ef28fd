//go:build wasip1

// Package export_outbox_listener_settings_check is what the generated exports call, under the name that they expect. It passes the call on
// to the SDK.
package export_outbox_listener_settings_check

import (
	"outbox/internal/wit/runtime"
	"outbox/internal/wit/types"
)

// Check is set by package outbox when it is initialized. It returns what is wrong with the settings, or an empty text.
var Check func() string

// CheckSettings looks at the settings when the plugin is loaded.
func CheckSettings() wit_types.Result[wit_types.Unit, string] {
	wit_runtime.BeginCall()
	defer wit_runtime.EndCall()
	if complaint := Check(); complaint != "" {
		return wit_types.Err[wit_types.Unit](complaint)
	}
	return wit_types.Ok[wit_types.Unit, string](wit_types.Unit{})
}
