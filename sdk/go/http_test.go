//go:build !wasip1

package outbox_test

import (
	"errors"
	"testing"
	"time"

	"outbox"
	"outbox/outboxtest"
)

// ask makes a request in a delivery whose server answers with this response.
func ask(t *testing.T, request outbox.Request, response outbox.Response) (*outboxtest.Host, error) {
	t.Helper()
	onThing = func(*outbox.Event) error {
		response, err := outbox.HTTP(request)
		if err != nil {
			return err
		}
		return response.RequireOK()
	}
	host := outboxtest.NewHost(t)
	host.Respond = func(outbox.Request) (*outbox.Response, error) { return &response, nil }
	err := host.Deliver(outboxtest.NewEvent("Thing", "Happened", ""))
	return host, err
}

func TestARequestHasItsDefaults(t *testing.T) {
	host, err := ask(t, outbox.Request{URL: "https://a.b", Body: []byte("{}")}, outbox.Response{Status: 204})
	if err != nil {
		t.Fatal(err)
	}
	request := host.Requests[0]
	if request.Method != "POST" || request.Timeout != 4500*time.Millisecond {
		t.Errorf("%+v", request)
	}
	if len(request.Headers) != 1 || request.Headers[0] != (outbox.Pair{Name: "content-type", Value: "application/json"}) {
		t.Errorf("%+v", request.Headers)
	}
	host, _ = ask(t, outbox.Request{URL: "https://a.b"}, outbox.Response{Status: 200})
	if host.Requests[0].Method != "GET" || len(host.Requests[0].Headers) != 0 {
		t.Errorf("%+v", host.Requests[0])
	}
}

func TestAStatusThatPassesIsRetryableAndAnotherIsNot(t *testing.T) {
	kind := func(status int, headers ...outbox.Pair) outbox.FailureKind {
		_, err := ask(t, outbox.Request{URL: "https://a.b"}, outbox.Response{Status: status, Headers: headers})
		return failureOf(t, err).Kind
	}
	for _, status := range []int{408, 425, 429, 500, 503} {
		if kind(status) != outbox.KindRetryable {
			t.Error(status)
		}
	}
	for _, status := range []int{301, 400, 404, 422} {
		if kind(status) != outbox.KindUnrecoverable {
			t.Error(status)
		}
	}
	if kind(429, outbox.Pair{Name: "Retry-After", Value: "3"}) != outbox.KindRetryableAfter {
		t.Error("a server says when to come back")
	}
}

func TestAFailedStatusNamesTheRequestWithoutItsQuery(t *testing.T) {
	_, err := ask(t, outbox.Request{URL: "https://a.b/c?key=secret"}, outbox.Response{Status: 404})
	failure := failureOf(t, err)
	if failure.Message != "GET https://a.b/c was answered with the status 404" || failure.Code != "http-404" {
		t.Errorf("%+v", failure)
	}
}

func TestAResponseThatIsNoJSONIsRetryable(t *testing.T) {
	onThing = func(*outbox.Event) error {
		response, err := outbox.GetHTTP("https://a.b")
		if err != nil {
			return err
		}
		return response.JSON(&struct{}{})
	}
	host := outboxtest.NewHost(t)
	host.Respond = func(outbox.Request) (*outbox.Response, error) {
		return &outbox.Response{Status: 200, Body: []byte("<html>")}, nil
	}
	failure := failureOf(t, host.Deliver(outboxtest.NewEvent("Thing", "Happened", "")))
	if failure.Kind != outbox.KindRetryable || failure.Code != "bad-response" {
		t.Errorf("%+v", failure)
	}
}

func TestARequestThatTheHostRefusesKeepsItsKind(t *testing.T) {
	onThing = func(*outbox.Event) error {
		_, err := outbox.PostJSON("https://a.b", 7)
		return err
	}
	host := outboxtest.NewHost(t)
	for kind, want := range map[outbox.RefusalKind]outbox.FailureKind{
		outbox.NotGranted: outbox.KindRetryable, outbox.Invalid: outbox.KindUnrecoverable,
		outbox.OverLimit: outbox.KindRetryable, outbox.Unavailable: outbox.KindRetryable,
	} {
		host.Refusal = &outbox.Refusal{Kind: kind, Message: "no"}
		failure := failureOf(t, host.Deliver(outboxtest.NewEvent("Thing", "Happened", "")))
		if failure.Kind != want || failure.Code != kind.String() {
			t.Errorf("%v: %+v", kind, failure)
		}
	}
	host.Refusal = nil
	if err := host.Deliver(outboxtest.NewEvent("Thing", "Happened", "")); err == nil {
		t.Error("a request that no test answers must not succeed")
	}
}

func TestThePluginLooksAtItsSettings(t *testing.T) {
	t.Cleanup(func() { outbox.CheckSettings(nil) })
	host := outboxtest.NewHost(t)
	if err := host.CheckSettings(); err != nil {
		t.Error(err)
	}
	outbox.CheckSettings(func() error {
		if _, ok := outbox.Setting("endpoint"); !ok {
			return errors.New("no endpoint")
		}
		return nil
	})
	if err := host.CheckSettings(); err == nil || err.Error() != "no endpoint" {
		t.Error(err)
	}
	host.Config["endpoint"] = "https://a.b"
	if err := host.CheckSettings(); err != nil {
		t.Error(err)
	}
	outbox.CheckSettings(func() error { panic("oh") })
	if err := host.CheckSettings(); err == nil {
		t.Error("a check that panics is a complaint")
	}
}
