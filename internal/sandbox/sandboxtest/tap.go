package sandboxtest

import (
	"net/http"
	"time"

	"k8s.io/client-go/rest"
)

// Tap returns a client configuration that passes its requests to a function of the test, which may inspect them,
// answer them itself, or send them.
func Tap(config *rest.Config,
	tap func(request *http.Request, send http.RoundTripper) (*http.Response, error)) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return RoundTripper(func(request *http.Request) (*http.Response, error) { return tap(request, next) })
	})
	return config
}

// Before returns a client configuration that calls a function of the test before each request. A request fails with the
// error of the function.
func Before(config *rest.Config, before func(*http.Request) error) *rest.Config {
	return Tap(config, func(request *http.Request, send http.RoundTripper) (*http.Response, error) {
		if err := before(request); err != nil {
			return nil, err
		}
		return send.RoundTrip(request)
	})
}

// ShiftClock returns a client configuration whose responses have dates as if the API server's clock were ahead.
func ShiftClock(config *rest.Config, ahead time.Duration) *rest.Config {
	return Tap(config, func(request *http.Request, send http.RoundTripper) (*http.Response, error) {
		response, err := send.RoundTrip(request)
		if err == nil {
			response.Header.Set("Date", time.Now().Add(ahead).UTC().Format(http.TimeFormat))
		}
		return response, err
	})
}

// A RoundTripper is a function that answers requests. As the Transport of a client configuration, it replaces the
// server.
type RoundTripper func(*http.Request) (*http.Response, error)

// RoundTrip calls the function.
func (r RoundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return r(request) }
