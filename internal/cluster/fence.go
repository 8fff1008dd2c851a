package cluster

import (
	"context"
	"net/http"

	"k8s.io/client-go/rest"
)

// Fenced returns a connection to the same cluster that writes only while check returns nil, for example while a lock is
// held. The connection calls check before each request that may change something. If check returns an error, so does
// the request.
func (c *Cluster) Fenced(check func(context.Context) error) (*Cluster, error) {
	fenced := *c
	_, err := connect(&fenced, Fence(c.base, check))
	return &fenced, err
}

// Fence returns a connection that writes only while check returns nil.
func Fence(connection *rest.Config, check func(context.Context) error) *rest.Config {
	connection = rest.CopyConfig(connection)
	connection.Wrap(func(next http.RoundTripper) http.RoundTripper { return fencedTransport{next, check} })
	return connection
}

// A fencedTransport calls check before it sends a request that may change something.
type fencedTransport struct {
	next  http.RoundTripper
	check func(context.Context) error
}

func (t fencedTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Method != http.MethodGet {
		if err := t.check(request.Context()); err != nil {
			return nil, err
		}
	}
	return t.next.RoundTrip(request)
}
