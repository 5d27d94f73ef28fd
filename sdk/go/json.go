package outbox

import (
	"encoding/json"
	"fmt"
)

// maxNesting is how many levels of a payload are followed. Go's parser follows 10,000, for which the stack of an instance is
// too small: the call would end with a trap, which is tried again and again.
const maxNesting = 1000

// JSON parses the payload. When it does not parse, the error is an unrecoverable failure that says what is wrong, to be returned as
// it is: the same bytes will never parse.
func (e *Event) JSON(into any) error {
	var err error
	if nesting(e.Payload) > maxNesting {
		err = fmt.Errorf("it is nested deeper than %d levels", maxNesting)
	} else {
		err = json.Unmarshal(e.Payload, into)
	}
	if err != nil {
		return Unrecoverable("invalid payload: %w", err)
	}
	return nil
}

// nesting is how many brackets are open at once, at most. Those inside of strings do not count.
func nesting(payload []byte) int {
	deepest, depth, inString := 0, 0, false
	for i := 0; i < len(payload); i++ {
		switch payload[i] {
		case '"':
			inString = !inString
		case '\\':
			if inString {
				i++
			}
		case '[', '{':
			if !inString {
				depth++
				deepest = max(deepest, depth)
			}
		case ']', '}':
			if !inString {
				depth--
			}
		}
	}
	return deepest
}
