package runtimehook

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

	hooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"

	"github.com/runlevel/runlevel/internal/text/printable"
)

const (
	maxOfAnswer  = 20 << 20 // bytes of an answer, as much as Cluster API reads
	maxOfRefusal = 4 << 10  // bytes of the body of a response other than 200
	maxOfHeaders = 64 << 10
)

// A Client calls extensions. The zero value works.
type Client struct {
	// DialContext connects to extensions; net.Dialer's if it is nil. Outside of a cluster it can forward to the pods of
	// a Service.
	DialContext func(ctx context.Context, network, address string) (net.Conn, error)
}

// A call is one request to one extension.
type call struct {
	extension string // the name in errors
	url       *url.URL
	roots     *x509.CertPool // nil for the system's
	timeout   time.Duration
}

// newCall prepares a request to a hook of an extension. Handler is the handler's own name.
func newCall(config *runtimev1.ExtensionConfig, extension, hook, handler string, timeout time.Duration) (*call, error) {
	refused := func(problem string) error {
		return &CallError{
			Extension: extension,
			Problem:   "can't be called",
			Advice:    "ExtensionConfig " + config.Name + ": " + problem,
		}
	}
	where, err := endpoint(config.Spec.ClientConfig)
	if err != nil {
		return nil, refused(err.Error())
	}
	where.Path = pathOf(where.Path, hook, handler)
	where.RawPath = ""
	where.RawQuery = url.Values{"timeout": {timeout.String()}}.Encode()
	c := &call{extension: extension, url: where, timeout: timeout}
	if bundle := config.Spec.ClientConfig.CABundle; len(bundle) > 0 {
		c.roots = x509.NewCertPool()
		if !c.roots.AppendCertsFromPEM(bundle) {
			return nil, refused("spec.clientConfig.caBundle has no certificate in PEM form")
		}
	}
	return c, nil
}

// post sends a request, and reads the answer into response, within the call's timeout.
func (c *Client) post(ctx context.Context, target *call, request, response any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return fmt.Errorf("write the request to extension %s: %w", target.extension, err)
	}
	limited, cancel := context.WithTimeout(ctx, target.timeout)
	defer cancel()
	answer, err := c.exchange(limited, target, body)
	switch {
	case ctx.Err() != nil: // the controller stops: no failure of the extension
		return fmt.Errorf("call extension %s: %w", target.extension, ctx.Err())
	case err != nil:
		return err
	}
	if err := json.Unmarshal(answer, response); err != nil {
		return noAnswer(target.extension, "sent a response that is not valid JSON for the hook (%s)",
			shorten(err.Error()))
	}
	return nil
}

// exchange sends the body of a request, and returns that of the answer.
func (c *Client) exchange(ctx context.Context, target *call, body []byte) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, target.url.String(), bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("call extension %s: %w", target.extension, err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json")
	response, err := c.httpClient(target).Do(request)
	if err != nil {
		return nil, target.unreachableError(err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, target.refusal(response)
	}
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxOfAnswer+1))
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return nil, target.unreachableError(err)
	case err != nil:
		return nil, noAnswer(target.extension, "broke off its answer (%s)", shorten(err.Error()))
	case len(answer) > maxOfAnswer:
		return nil, noAnswer(target.extension, "answered more than %d MiB", maxOfAnswer>>20)
	}
	return answer, nil
}

// refusal is the error of a response other than 200.
func (c *call) refusal(response *http.Response) *CallError {
	if location := response.Header.Get("Location"); response.StatusCode/100 == 3 && location != "" {
		return noAnswer(c.extension, "redirects to %s, which is not followed", shorten(location))
	}
	text, _ := io.ReadAll(io.LimitReader(response.Body, maxOfRefusal))
	problem := fmt.Sprintf("answered %s", shorten(response.Status))
	if words := shorten(string(text)); words != "" {
		problem += " (" + words + ")"
	}
	return noAnswer(c.extension, "%s", problem)
}

// httpClient returns a client for one call, so that the next one uses a changed certificate or address. It follows no
// redirects, which could lead to servers that the ExtensionConfig does not name.
func (c *Client) httpClient(target *call) *http.Client {
	dial := c.DialContext
	if dial == nil {
		dial = (&net.Dialer{Timeout: target.timeout}).DialContext
	}
	return &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			Proxy:       http.ProxyFromEnvironment,
			DialContext: dial,
			TLSClientConfig: &tls.Config{
				MinVersion: tls.VersionTLS12,
				RootCAs:    target.roots,
				ServerName: target.url.Hostname(),
			},
			TLSHandshakeTimeout:    target.timeout,
			DisableKeepAlives:      true,
			MaxResponseHeaderBytes: maxOfHeaders,
		},
	}
}

// endpoint returns the URL of an extension, without the path of a hook.
func endpoint(config runtimev1.ClientConfig) (*url.URL, error) {
	hasService := config.Service.IsDefined()
	switch {
	case hasService && config.URL != "":
		return nil, errors.New("spec.clientConfig has both url and service: remove one of them")
	case hasService:
		return endpointOfService(config.Service)
	case config.URL == "":
		return nil, errors.New("spec.clientConfig has neither url nor service: set one of them")
	}
	found, err := url.Parse(config.URL)
	switch {
	case err != nil:
		return nil, errors.New("spec.clientConfig.url is not a URL: write https://HOST:PORT/PATH")
	case found.Scheme != "https":
		return nil, fmt.Errorf("spec.clientConfig.url begins with %q: extensions are called over https only, since "+
			"what they answer decides about machines", found.Scheme)
	case found.Hostname() == "":
		return nil, errors.New("spec.clientConfig.url has no host: write https://HOST:PORT/PATH")
	case found.User != nil || found.RawQuery != "" || found.Fragment != "":
		return nil, errors.New("spec.clientConfig.url has a user, a query or a fragment: write https://HOST:PORT/PATH")
	}
	return found, nil
}

func endpointOfService(service runtimev1.ServiceReference) (*url.URL, error) {
	if service.Name == "" || service.Namespace == "" {
		return nil, errors.New("spec.clientConfig.service lacks its name or its namespace")
	}
	host := service.Name + "." + service.Namespace + ".svc"
	if port := service.Port; port != nil {
		if *port < 1 || *port > 65535 {
			return nil, fmt.Errorf("spec.clientConfig.service.port is %d: ports go from 1 to 65535", *port)
		}
		host = net.JoinHostPort(host, strconv.Itoa(int(*port)))
	}
	return &url.URL{Scheme: "https", Host: host, Path: service.Path}, nil
}

// pathOf returns the path of a hook behind a prefix. Discovery has no handler.
func pathOf(prefix, hook, handler string) string {
	return path.Join("/", prefix, hooksv1.GroupVersion.String(), strings.ToLower(hook), strings.ToLower(handler))
}

// A CallError is a problem with an extension or its answer, in one line, with a remedy.
type CallError struct {
	Extension string // the name of the handler, or of the ExtensionConfig
	Problem   string
	Advice    string

	// isIgnorable is true if failurePolicy Ignore ignores the error: the extension could not be reached, or its answer
	// could not be read. An answer with the status Failure is never ignored.
	isIgnorable bool
}

func (e *CallError) Error() string {
	return printable.Line(fmt.Sprintf("extension %s %s: %s", e.Extension, e.Problem, e.Advice))
}

// IsUnanswered reports whether an extension could not be reached, or its answer could not be read. Failure policy
// Ignore ignores such errors, and no others.
func IsUnanswered(err error) bool {
	var call *CallError
	return errors.As(err, &call) && call.isIgnorable
}

const adviceLogs = "see the log of the extension, and correct what it answers"

// wrongAnswer is the error of an answer that the hook does not allow.
func wrongAnswer(extension, format string, arguments ...any) *CallError {
	return &CallError{Extension: extension, Problem: fmt.Sprintf(format, arguments...), Advice: adviceLogs}
}

// noAnswer is the error of an answer that can't be read.
func noAnswer(extension, format string, arguments ...any) *CallError {
	e := wrongAnswer(extension, format, arguments...)
	e.isIgnorable = true
	return e
}

// longestMessage limits the bytes shown of a text of an extension.
const longestMessage = 512

// shorten returns a text of an extension in one line.
func shorten(text string) string {
	return printable.Truncate(printable.Line(strings.TrimSpace(text)), longestMessage)
}

// unreachableError returns the error of a request without an answer.
func (c *call) unreachableError(err error) *CallError {
	e := &CallError{Extension: c.extension, isIgnorable: true}
	var authority x509.UnknownAuthorityError
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	var plain tls.RecordHeaderError
	host := c.url.Hostname()
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		e.Problem = fmt.Sprintf("did not answer within %s", c.timeout)
		e.Advice = "see whether it runs, or have its Discovery answer a greater timeoutSeconds (30 at most)"
	case errors.As(err, &authority):
		e.Problem = "has a certificate from an unknown authority"
		e.Advice = "set spec.clientConfig.caBundle, or the annotation " +
			"runtime.cluster.x-k8s.io/inject-ca-from-secret, to the CA of its certificate"
	case errors.As(err, &name):
		e.Problem = fmt.Sprintf("has a certificate for other hosts than %s", host)
		e.Advice = fmt.Sprintf("issue one whose DNS names or IP addresses contain %s", host)
	case errors.As(err, &invalid):
		e.Problem = "has an invalid certificate (" + shorten(invalid.Error()) + ")"
		e.Advice = "renew it"
	case errors.As(err, &plain) || errors.Is(err, http.ErrSchemeMismatch):
		e.Problem = "does not speak TLS at " + c.url.Host
		e.Advice = "have it serve HTTPS, or correct the port"
	default:
		e.Problem = fmt.Sprintf("can't be reached at %s (%s)", c.url.Host, shorten(printable.RequestError(err).Error()))
		e.Advice = "see whether it runs, and whether spec.clientConfig is right"
	}
	return e
}
