// Takes events many at a time: package outbox/batch is tested with it. The payload, a JSON text, says what becomes of an event:
//
//	Payload   In a call for several events                  In a call of its own
//	"count"   is dead with the reason `one of N`            is dead with the reason `alone`
//	"fail"    fails for good, with the reason `one of N`    the same, with `alone`
//	"trap"    the program ends, and the whole call with it  the program ends
//	other     is done                                       is done
package main

import (
	"fmt"

	"outbox"
	"outbox/batch"
)

func init() {
	outbox.Plugin("batches-go", "1.0.0")
	outbox.HandleJSON("Batches", "Do", func(_ *outbox.Event, said string) error { return answer(said, "alone") })
	batch.Handle("Batches", "Do", answerAll)
}

func main() {}

func answerAll(events []*outbox.Event) ([]error, error) {
	with := fmt.Sprintf("one of %d", len(events))
	answers := make([]error, len(events))
	for i, event := range events {
		var said string
		if err := event.JSON(&said); err != nil {
			answers[i] = err
			continue
		}
		answers[i] = answer(said, with)
	}
	return answers, nil
}

func answer(said, with string) error {
	switch said {
	case "count":
		return outbox.Dead("%s", with)
	case "fail":
		return outbox.Unrecoverable("%s", with)
	case "trap":
		end()
	}
	return nil
}

// end is a panic that nobody recovers from: the SDK does so in the goroutine of the call alone.
func end() {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		panic("as asked")
	}()
	<-ended
}
