package outbox

import (
	"fmt"
	"runtime/debug"
)

// BatchHandler answers many events of one route: for each its error, in order, which means what the error of a Handler does. No
// errors at all mean that every event is finished. The second result, where it is not nil, is the answer to each of them.
type BatchHandler func(events []*Event) (answers []error, err error)

var batchHandlers = map[Route]BatchHandler{}

// RegisterBatch is Handle of package outbox/batch, which also exports what the host calls.
func RegisterBatch(aggregateType, eventType string, handler BatchHandler) {
	route := Route{aggregateType, eventType}
	if handler == nil {
		panic(fmt.Sprintf("outbox: the batch handler of %v is nil", route))
	}
	if _, taken := batchHandlers[route]; taken {
		panic(fmt.Sprintf("outbox: %v has two batch handlers", route))
	}
	batchHandlers[route] = handler
	list(route)
}

// ForEvent makes the attributes of a message or request that is for one of many events: of Message.Attributes and
// Request.Attributes. In a call for several events a message must say it: its id is made from its event, and by that id a
// receiver tells a repeat.
func ForEvent(event *Event) Pairs {
	return Pairs{{"event-id", event.ID}}
}

// answerAll answers events that came together, in order. Only neighbours of one route go together: events of one aggregate may have
// different routes, and keep their order.
func answerAll(events []*Event) []error {
	answers := make([]error, 0, len(events))
	for len(events) > 0 {
		route, count := events[0].Route, 1
		handler, together := batchHandlers[route]
		for together && count < len(events) && events[count].Route == route {
			count++
		}
		if together {
			answers = append(answers, answerTogether(handler, events[:count])...)
		} else {
			answers = append(answers, answer(events[0]))
		}
		events = events[count:]
	}
	return answers
}

// answerTogether calls a batch handler. A panic is a failure of each of its events, as it is of one.
func answerTogether(handler BatchHandler, events []*Event) (answers []error) {
	same := func(err error) []error {
		all := make([]error, len(events))
		for i := range all {
			all[i] = err
		}
		return all
	}
	defer func() {
		if reason := recover(); reason != nil {
			Error("the listener panicked", "panic", reason, "stack", string(debug.Stack()))
			answers = same(&Failure{Message: fmt.Sprintf("the listener panicked: %v", reason), Code: "panic"})
		}
	}()
	answers, err := handler(events)
	switch {
	case err != nil:
		return same(err)
	case answers == nil:
		return same(nil)
	case len(answers) != len(events):
		return same(fmt.Errorf("the batch handler of %v got %d events and returned %d answers; it must return one for each",
			events[0].Route, len(events), len(answers)))
	default:
		return answers
	}
}
