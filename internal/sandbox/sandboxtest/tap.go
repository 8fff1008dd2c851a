package sandboxtest

import (
	"net/http"

	"k8s.io/client-go/rest"
)

// Tap returns a client configuration whose requests go through a function of the test, which may inspect them, answer
// them itself, or send them.
func Tap(config *rest.Config, tap func(request *http.Request, send http.RoundTripper) (*http.Response, error)) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) { return tap(request, next) })
	})
	return config
}

type roundTripper func(*http.Request) (*http.Response, error)

func (r roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return r(request) }
