// Package outbox is for writing outbox listeners in Go.
//
// A plugin is one function for each route, registered when the program is initialized:
//
//	package main
//
//	import "outbox"
//
//	type Order struct {
//		ID    int64   `json:"order_id"`
//		Total float64 `json:"total"`
//	}
//
//	func init() {
//		outbox.Plugin("order-greeter", "0.1.0")
//		outbox.HandleJSON("Order", "OrderPlaced", onOrderPlaced)
//		outbox.Handle("Order", "OrderArchived", onOrderArchived)
//	}
//
//	// The payload is parsed before this is called.
//	func onOrderPlaced(event *outbox.Event, order Order) error {
//		if order.Total <= 0 {
//			return outbox.Dead("an order must cost something")
//		}
//		outbox.Info("order placed", "order_id", order.ID, "attempt", event.Attempt)
//		return nil
//	}
//
//	func onOrderArchived(event *outbox.Event) error {
//		return archive(event.Payload) // any error is a retryable failure
//	}
//
//	func main() {} // Go asks for it; the host never calls it
//
// # What a listener answers
//
//	nil                                    the event is finished
//	RetryAfter(delay)                      delivered again after delay; not counted as an attempt
//	Dead("why")                            never delivered again
//	any other error                        delivered again when the retry policy says; counted as an attempt
//	RetryableAfter(delay, "why")           delivered again after delay; counted as an attempt
//	Unrecoverable("why")                   never delivered again
//
// Answers may be wrapped: errors.As finds them. A panic is a retryable failure, and its trace goes to the host's log.
//
// An event is delivered at least once: Event.ID stays the same and is the key for deduplication. A listener may find itself in
// a fresh instance or in one that served other events before: keep nothing in variables that must survive, and rely on nothing
// to be gone. A goroutine runs only while a call is under way.
package outbox

import (
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
)

// Route is the pair that picks the listener of an event.
type Route struct {
	// AggregateType is the kind of thing that it happened to; "__GLOBAL__" if the writer gave none.
	AggregateType string
	// EventType says what happened.
	EventType string
}

// String returns the two types with a slash between them.
func (r Route) String() string {
	return r.AggregateType + "/" + r.EventType
}

// Handler answers one delivery. What its error means stands in the description of the package.
type Handler func(event *Event) error

// Description is what a plugin says of itself when it is loaded.
type Description struct {
	Name    string
	Version string
	Routes  []Route
}

var (
	pluginName    string
	pluginVersion string
	routes        []Route // in the order of registration
	handlers      = map[Route]Handler{}
	settingsCheck func() error
)

// Plugin names the plugin and its version, for logs and lists. Without it, the name is the last part of the module's path, and the
// version is what Go knows of the module.
func Plugin(name, version string) {
	pluginName, pluginVersion = name, version
}

// Handle registers the function that answers a route. It must be called while the program is initialized, and panics when the
// route has a function already.
func Handle(aggregateType, eventType string, handler Handler) {
	route := Route{aggregateType, eventType}
	if handler == nil {
		panic(fmt.Sprintf("outbox: the handler of %v is nil", route))
	}
	if _, taken := handlers[route]; taken {
		panic(fmt.Sprintf("outbox: %v has two handlers", route))
	}
	handlers[route] = handler
	list(route)
}

// list puts a route among those that the plugin answers, once.
func list(route Route) {
	if !slices.Contains(routes, route) {
		routes = append(routes, route)
	}
}

// HandleJSON registers the function that answers a route whose payload is JSON. A payload that does not parse is an unrecoverable
// failure, since the same bytes will never parse; members that the type does not have do no harm.
func HandleJSON[Payload any](aggregateType, eventType string, handler func(event *Event, payload Payload) error) {
	if handler == nil {
		Handle(aggregateType, eventType, nil)
	}
	Handle(aggregateType, eventType, func(event *Event) error {
		var payload Payload
		if err := event.JSON(&payload); err != nil {
			return err
		}
		return handler(event, payload)
	})
}

// CheckSettings registers the plugin's own look at its settings. The host asks for it when it loads the plugin: an error keeps
// this version from serving and is shown to the operator, and the version before it goes on serving. It must be called while
// the program is initialized.
func CheckSettings(check func() error) {
	settingsCheck = check
}

// settingsComplaint is what is wrong with the settings. A check that panics does not end the program: the host shows what it
// said.
func settingsComplaint() (err error) {
	if settingsCheck == nil {
		return nil
	}
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("the check of the settings panicked: %v", reason)
		}
	}()
	return settingsCheck()
}

// Describe returns what the plugin says of itself.
func Describe() Description {
	description := Description{Name: pluginName, Version: pluginVersion, Routes: append([]Route(nil), routes...)}
	if info, ok := debug.ReadBuildInfo(); ok && description.Name == "" {
		path := info.Main.Path
		description.Name = path[strings.LastIndex(path, "/")+1:]
		description.Version = info.Main.Version
	}
	return description
}

// answer calls the handler of the event's route. A panic comes back as a failure: the default of a Go program would be to end,
// and the host could only call that a trap.
func answer(event *Event) (err error) {
	handler, ok := handlers[event.Route]
	if together, isBatch := batchHandlers[event.Route]; !ok && isBatch {
		return answerTogether(together, []*Event{event})[0]
	}
	if !ok {
		return Unrecoverable("this plugin does not answer %v", event.Route)
	}
	defer func() {
		if reason := recover(); reason != nil {
			Error("the listener panicked", "panic", reason, "stack", string(debug.Stack()))
			err = &Failure{Message: fmt.Sprintf("the listener panicked: %v", reason), Code: "panic"}
		}
	}()
	return handler(event)
}
