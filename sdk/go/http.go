package outbox

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Request is an HTTP request. What is left out takes the default.
type Request struct {
	// Method is in upper case; empty for "GET", or for "POST" with a body.
	Method string
	// URL is absolute: scheme, host, optional port, path and query.
	URL string
	// ContentType is empty for "application/json" with a body. A header of that name goes before it.
	ContentType string
	Headers     Pairs
	Body        []byte
	// Timeout is for the whole of it; 0 for nine tenths of what is left of the call, so that the listener can still answer.
	Timeout time.Duration
	// Attributes are what a later host may understand; unknown keys are refused.
	Attributes Pairs
}

// Response is what a server answered, whole.
type Response struct {
	// Status is 100 to 599.
	Status int
	// Headers are in the order in which they came, with names in lower case.
	Headers Pairs
	// Body is as it came: nothing is decompressed.
	Body []byte

	request string // what it is the response to, for messages
}

// HTTP makes a request, and waits for the whole response. A status such as 500 is a response, not an error, and a redirect is
// not followed: see Response.RequireOK. The host adds an Idempotency-Key, the same on every delivery of the event, to each
// request that has none. Needs the origin in "http.allow" of the plugin's manifest.
//
// The error is a *Refusal: an origin that is not granted, a request that breaks a rule, a response that is too large, or a
// server that cannot be reached or takes too long.
func HTTP(request Request) (*Response, error) {
	if request.Method == "" {
		request.Method = "GET"
		if len(request.Body) > 0 {
			request.Method = "POST"
		}
	}
	if len(request.Body) > 0 && request.ContentType == "" {
		request.ContentType = "application/json"
	}
	if request.ContentType != "" && !hasHeader(request.Headers, "content-type") {
		headers := append(Pairs(nil), request.Headers...)
		request.Headers = append(headers, Pair{"content-type", request.ContentType})
	}
	if request.Timeout <= 0 {
		// A call that the host cuts off loses its instance, and the reason with it.
		request.Timeout = Remaining() / 10 * 9
	}
	response, err := sendHTTP(request)
	if err != nil {
		return nil, err
	}
	// Without the query, which often holds a key.
	url, _, _ := strings.Cut(request.URL, "?")
	response.request = request.Method + " " + url
	return response, nil
}

// GetHTTP makes a GET request. See HTTP.
func GetHTTP(url string) (*Response, error) {
	return HTTP(Request{Method: "GET", URL: url})
}

// PostJSON makes a POST request with a value as JSON. See HTTP.
func PostJSON(url string, body any) (*Response, error) {
	bytes, err := json.Marshal(body)
	if err != nil {
		return nil, Unrecoverable("the body of a request cannot be JSON: %w", err)
	}
	return HTTP(Request{Method: "POST", URL: url, Body: bytes})
}

// OK says whether the status is 200 to 299.
func (r *Response) OK() bool {
	return r.Status >= 200 && r.Status <= 299
}

// Header returns the first header of this name, in any case of its letters, and whether there is one.
func (r *Response) Header(name string) (value string, ok bool) {
	for _, header := range r.Headers {
		if strings.EqualFold(header.Name, name) {
			return header.Value, true
		}
	}
	return "", false
}

// JSON parses the body. When it does not parse, the error is a retryable failure: a server that sends something else may be in
// trouble that passes.
func (r *Response) JSON(into any) error {
	var err error
	if nesting(r.Body) > maxNesting {
		err = fmt.Errorf("it is nested deeper than %d levels", maxNesting)
	} else {
		err = json.Unmarshal(r.Body, into)
	}
	if err != nil {
		err = fmt.Errorf("invalid response to %s: %w", r.request, err)
		return WithCode(err, "bad-response")
	}
	return nil
}

// RequireOK returns nil when the status is 200 to 299, else a failure with the code "http-STATUS": a retryable one for 408,
// 425, 429 and 500 to 599, which pass, after as many seconds as the header Retry-After says; an unrecoverable one for every
// other status, since the same request would be answered so again.
func (r *Response) RequireOK() error {
	if r.OK() {
		return nil
	}
	failure := &Failure{
		Message: fmt.Sprintf("%s was answered with the status %d", r.request, r.Status),
		Code:    fmt.Sprintf("http-%d", r.Status),
	}
	passes := r.Status == 408 || r.Status == 425 || r.Status == 429 || r.Status >= 500
	wait, _ := r.Header("retry-after")
	seconds, err := strconv.ParseUint(strings.TrimSpace(wait), 10, 32)
	switch {
	case !passes:
		failure.Kind = KindUnrecoverable
	case err == nil:
		failure.Kind, failure.After = KindRetryableAfter, time.Duration(seconds)*time.Second
	}
	return failure
}

func hasHeader(headers Pairs, name string) bool {
	for _, header := range headers {
		if strings.EqualFold(header.Name, name) {
			return true
		}
	}
	return false
}
