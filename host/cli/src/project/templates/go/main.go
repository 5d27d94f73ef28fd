// Answers {{aggregate_type}}/{{event_type}}.
package main

import "outbox"

func init() {
	outbox.Plugin("{{name}}", "0.1.0")
	outbox.HandleJSON("{{aggregate_type}}", "{{event_type}}", onEvent)
}

func main() {} // Go asks for it; the host never calls it

// payload is what the writer puts into the payload, as JSON. More fields do no harm.
type payload struct {
	Message *string `json:"message"`
}

func onEvent(event *outbox.Event, payload payload) error {
	if payload.Message == nil {
		return outbox.Unrecoverable("the payload has no `message`")
	}
	if *payload.Message == "" {
		return outbox.Dead("the message is empty")
	}
	outbox.Info(event.Route.EventType+": "+*payload.Message, "attempt", event.Attempt)

	// Where the manifest names an endpoint, it gets the event. It may get it again: the host sends the event's id along as the key
	// against doing a thing twice.
	endpoint, ok := outbox.Setting("endpoint")
	if !ok {
		return nil
	}
	response, err := outbox.HTTP(outbox.Request{URL: endpoint, ContentType: event.ContentType, Body: event.Payload})
	if err != nil {
		return err
	}
	return response.RequireOK()
}
