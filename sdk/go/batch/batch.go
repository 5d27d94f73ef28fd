// Package batch is for plugins that take many events in one call, where the operator sets isolation = "batch":
//
//	func init() {
//		batch.Handle("Order", "OrderPlaced", onOrdersPlaced)
//	}
//
//	// One request for all of them.
//	func onOrdersPlaced(events []*outbox.Event) ([]error, error) {
//		orders := make([]json.RawMessage, len(events))
//		for i, event := range events {
//			orders[i] = event.Payload
//		}
//		response, err := outbox.PostJSON("https://api.example.com/orders", orders)
//		if err != nil {
//			return nil, err // the answer to each of them
//		}
//		return nil, response.RequireOK() // nil: all of them are finished
//	}
//
// A plugin that imports this package exports what the host calls with up to 100 events of one tenant; one that does not has no
// such export. Emitting and keeping state belong to one event, and are refused in a call for several; a message says for which
// event it is, with outbox.ForEvent, and a request that does so gets an Idempotency-Key.
package batch

import "outbox"

// Handle registers the function that answers many events of a route, those that follow each other in a call. A route that has
// no function for single events, by outbox.Handle, is answered by this one with one event at a time wherever the host delivers
// it so: without isolation = "batch", and after a call that broke off. It must be called while the program is initialized, and
// panics when the route has such a function already.
func Handle(aggregateType, eventType string, handler outbox.BatchHandler) {
	outbox.RegisterBatch(aggregateType, eventType, handler)
}
