package notify

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/runlevel/runlevel/internal/text/printable"
)

// tries are those of a request that fails for a while: three, within deliverTimeout.
var tries = wait.Backoff{Duration: time.Second, Factor: 3, Steps: 3}

// requestTimeout bounds one of the tries.
const requestTimeout = 5 * time.Second

// mostRead is how much of a response is read, so that the connection can be used again.
const mostRead = 64 << 10

// newClient returns the client of all requests. Its proxy is that of the environment. It follows no redirects: the
// target may be another host, and a POST that was redirected may become a GET.
func newClient() *http.Client {
	return &http.Client{
		Timeout:       requestTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// A message is the content of a POST request.
type message struct {
	url, contentType string
	body             []byte
}

// post sends a message, again if the receiver does not answer, is overloaded, or has failed. Errors have no part of the
// URL, and nothing of the response, which may quote it.
func post(ctx context.Context, client *http.Client, m message) error {
	var last error
	_ = wait.ExponentialBackoffWithContext(ctx, tries, func(ctx context.Context) (bool, error) {
		var isFinal bool
		isFinal, last = postOnce(ctx, client, m)
		return isFinal, nil
	})
	if last == nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return last
}

// postOnce sends a message, and reports whether it is not to be sent again.
func postOnce(ctx context.Context, client *http.Client, m message) (isFinal bool, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, m.url, bytes.NewReader(m.body))
	if err != nil {
		return true, printable.RequestError(err)
	}
	request.Header.Set("Content-Type", m.contentType)
	request.Header.Set("User-Agent", "runlevel")
	response, err := client.Do(request)
	if err != nil {
		return false, printable.Error(printable.RequestError(err))
	}
	defer response.Body.Close()
	_, _ = io.CopyN(io.Discard, response.Body, mostRead)
	status := fmt.Sprintf("%d %s", response.StatusCode, http.StatusText(response.StatusCode))
	switch {
	case response.StatusCode < 300:
		return true, nil
	case response.StatusCode < 400:
		return true, fmt.Errorf("%s: redirects are not followed: name the URL that it leads to", status)
	default:
		return response.StatusCode < 500 && response.StatusCode != http.StatusTooManyRequests, fmt.Errorf("%s", status)
	}
}
