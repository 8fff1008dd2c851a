package oci

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"path"
	"strings"
	"time"
)

const (
	maxRedirects = 5 // redirects of one request; registries redirect once to blobs
	// A response is stalled if it has fewer than minProgress bytes in each stallTime.
	minProgress = 64 * kib
	stallTime   = 30 * time.Second
	maxError    = 32 * kib // bytes of an error that are read
)

// limitedTransport ends requests that a registry could keep open for ever: the registry library
// follows redirects without a limit, and reads responses without limits of time or size.
//
// It also keeps a registry from leading requests to addresses that only this machine or its host answers, and opens the
// body of each request by its GetBody: the library sends a request again after a login, when the body has been read.
type limitedTransport struct {
	next     http.RoundTripper
	registry string // host
}

// acceptBlob marks requests for blobs, also after a redirect. The address is no mark, since a registry chooses those of
// its token server, whose answers are read into memory.
const acceptBlob = "application/octet-stream, */*"

// CloseIdleConnections is called by the client's method of that name.
func (l limitedTransport) CloseIdleConnections() {
	(&http.Client{Transport: l.next}).CloseIdleConnections()
}

// A limitError is the reason why limitedTransport has ended a request.
type limitError string

func (e limitError) Error() string { return string(e) }

func (l limitedTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	first, redirects := request, 0
	for first.Response != nil && first.Response.Request != nil {
		first, redirects = first.Response.Request, redirects+1
	}
	if redirects > maxRedirects {
		if request.Body != nil {
			request.Body.Close()
		}
		return nil, limitError(fmt.Sprintf("%s redirects more than %d times", first.URL.Host, maxRedirects))
	}
	err := checkHost(l.registry, request.URL.Hostname())
	ctx, cancel := context.WithCancelCause(request.Context())
	request = request.WithContext(ctx)
	if err == nil && request.GetBody != nil {
		if request.Body != nil {
			request.Body.Close()
		}
		request.Body, err = request.GetBody()
	}
	if err != nil {
		cancel(nil)
		return nil, err
	}
	response, err := l.next.RoundTrip(request)
	if err != nil {
		cancel(nil)
		return nil, err
	}
	host := request.URL.Host
	isPing := strings.HasSuffix(request.URL.Path, "/v2/") // of which only the headers count
	// registries without lists of referrers may answer with a page
	isList := path.Base(path.Dir(request.URL.Path)) == "referrers"
	isPage := strings.HasPrefix(response.Header.Get("Content-Type"), "text/html") &&
		request.Method != http.MethodHead && response.StatusCode < http.StatusMultipleChoices
	if isPage && !isPing && !isList {
		cancel(nil)
		response.Body.Close()
		return nil, limitError(host + " answers with a web page, such as the login page of a network: check the " +
			"registry's name and your network")
	}
	limit := int64(MaxManifest + 1)
	switch {
	case response.StatusCode >= http.StatusBadRequest: // the library refuses errors of more than 64 KiB
		limit = maxError
	case request.Header.Get("Accept") == acceptBlob: // the size of blobs is known and checked
		limit = math.MaxInt64
	}
	tooSlow := &temporaryError{err: limitError(fmt.Sprintf("%s sends less than %s in %s: check your network, or try "+
		"again later", host, InBytes(minProgress), stallTime))}
	response.Body = &stallingBody{
		Reader: io.LimitReader(response.Body, limit), Closer: response.Body,
		ctx: ctx, cancel: cancel, stall: time.AfterFunc(stallTime, func() { cancel(tooSlow) }),
	}
	return response, nil
}

// A stallingBody is the body of a response whose request is canceled when it makes no progress.
type stallingBody struct {
	io.Reader
	io.Closer
	ctx    context.Context
	cancel context.CancelCauseFunc
	stall  *time.Timer
	got    int // bytes since the timer was set
}

func (b *stallingBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if b.got += n; b.got >= minProgress {
		b.got = 0
		b.stall.Reset(stallTime)
	}
	var why *temporaryError
	if err != nil && errors.As(context.Cause(b.ctx), &why) {
		return n, why
	}
	return n, err
}

func (b *stallingBody) Close() error {
	b.stall.Stop()
	defer b.cancel(nil)
	return b.Closer.Close()
}

// An attemptMarker marks the errors of requests without a response. The registry library tries https and then http, and
// joins their errors: the error of https is not marked if the server has no TLS. Plain http is refused unless insecure
// is set, also for registries on this machine and in private networks.
type attemptMarker struct {
	*http.Transport
	insecure bool
}

func (a attemptMarker) RoundTrip(request *http.Request) (*http.Response, error) {
	if !a.insecure && request.URL.Scheme != "https" {
		if request.Body != nil {
			request.Body.Close()
		}
		return nil, plainHTTPError{host: request.URL.Host}
	}
	response, err := a.Transport.RoundTrip(request)
	if err != nil && !errors.As(err, new(tls.RecordHeaderError)) {
		err = attemptError{err}
	}
	return response, err
}

// An attemptError is the error of a request without a response.
type attemptError struct{ error }

func (a attemptError) Unwrap() error { return a.error }

// Timeout implements net.Error.
func (a attemptError) Timeout() bool {
	var timeout net.Error
	return errors.As(a.error, &timeout) && timeout.Timeout()
}
