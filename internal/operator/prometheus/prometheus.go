// Package prometheus reads a Prometheus for the operator: it evaluates the queries of the risks of updates, and lists
// the alerts that fire. It does not judge them: package clusterversion does.
//
// A query is evaluated once per hour, and at most one query per second, as by OpenShift's cluster-version operator. One
// that fails is repeated after a minute. Start with New; Run sends the requests, and Follow returns the last results.
package prometheus

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/api"
	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
	"github.com/spf13/pflag"

	"github.com/runlevel/runlevel/internal/operator/clusterversion"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// Options configure a client.
type Options struct {
	// URL is empty for OpenShift's Prometheus, if there is one, and None for no Prometheus.
	URL       string `json:"prometheus-url"`
	CAFile    string `json:"prometheus-ca-file"`    // certificates of authorities, beside those of the system
	TokenFile string `json:"prometheus-token-file"` // a bearer token, which is read for each request

	isOpenShifts bool // it is OpenShift's own, which may not exist
}

// None is the URL of no Prometheus, not even of OpenShift's.
const None = "none"

// AddFlags adds the flags of the options, which the operator and its installer have.
func (o *Options) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.URL, "prometheus-url", "", "a Prometheus that evaluates the queries of risks of updates, and "+
		"whose alerts are risks, too (default: OpenShift's, if there is one; \"none\": no Prometheus)")
	flags.StringVar(&o.CAFile, "prometheus-ca-file", "",
		"a file with the certificates of authorities for the Prometheus, in the operator's pod")
	flags.StringVar(&o.TokenFile, "prometheus-token-file", "",
		"a file with the bearer token for the Prometheus, in the operator's pod")
}

// serviceCA are the authorities of services of OpenShift, which puts them into a ConfigMap of each namespace. The
// operator's Deployment mounts it.
const serviceCA = "/etc/runlevel/service-ca/service-ca.crt"

// orOpenShifts returns the options. If they are empty, it returns those of OpenShift's own Prometheus, like the
// cluster-version operator.
func (o Options) orOpenShifts(authorities string) Options {
	if o != (Options{}) {
		return o
	}
	return Options{
		URL: "https://thanos-querier.openshift-monitoring.svc:9091", CAFile: authorities,
		TokenFile: "/var/run/secrets/kubernetes.io/serviceaccount/token", isOpenShifts: true,
	}
}

// Check returns the error in the options.
func (o Options) Check() error {
	parsed, err := url.Parse(o.URL)
	isUnset := o.URL == "" || o.URL == None
	switch {
	case isUnset && (o.CAFile != "" || o.TokenFile != ""):
		return errors.New("--prometheus-ca-file and --prometheus-token-file need --prometheus-url")
	case isUnset:
		return nil
	case err != nil || parsed.Host == "" || parsed.Scheme != "http" && parsed.Scheme != "https":
		return errors.New("--prometheus-url: write the URL of a Prometheus, such as https://prometheus.example:9090")
	case parsed.Scheme == "http" && o.TokenFile != "":
		return errors.New("--prometheus-token-file: a token is only sent over https")
	default:
		return nil
	}
}

// Limits of a request.
const (
	requestTimeout = time.Minute
	maxResponse    = 8 << 20 // bytes
	maxError       = 300     // bytes of a message
)

// A client sends requests to a Prometheus, one at a time.
type client struct {
	options Options
	timeout time.Duration
	api     promv1.API // nil before the first connect that succeeds
	pem     []byte     // content of options.CAFile that api trusts
}

// errMissing is the error of OpenShift's server, or of its authorities, if they do not exist.
var errMissing = errors.New("no such service")

func newClient(o Options) (*client, error) {
	c := &client{options: o, timeout: requestTimeout}
	return c, c.connect()
}

// connect sets the API. It does so again when the authorities have changed: they are rotated, and OpenShift may create
// them after the operator has started.
func (c *client) connect() error {
	pem, authorities, err := readAuthorities(c.options.CAFile)
	switch {
	case err != nil && c.options.isOpenShifts:
		return fmt.Errorf("%w: %w", errMissing, err)
	case err != nil:
		return fmt.Errorf("--prometheus-ca-file: %w", err)
	case c.api != nil && bytes.Equal(pem, c.pem):
		return nil
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{RootCAs: authorities}
	if c.options.isOpenShifts {
		transport.Proxy = nil // it is in the cluster
	}
	connection, err := api.NewClient(api.Config{Address: c.options.URL, Client: &http.Client{
		Transport: &roundTripper{base: transport, tokenFile: c.options.TokenFile},
		// the token is for this server only
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}})
	if err != nil {
		return err
	}
	c.api, c.pem = promv1.NewAPI(connection), pem
	return nil
}

// readAuthorities returns the content of a file, and its certificates beside those of the system; nil without a file.
func readAuthorities(file string) ([]byte, *x509.CertPool, error) {
	if file == "" {
		return nil, nil, nil
	}
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, nil, err
	}
	authorities, err := x509.SystemCertPool()
	if err != nil {
		authorities = x509.NewCertPool()
	}
	if !authorities.AppendCertsFromPEM(pem) {
		return nil, nil, fmt.Errorf("%s has no certificate in PEM", file)
	}
	return pem, authorities, nil
}

// A roundTripper adds the token to requests, and limits responses.
type roundTripper struct {
	base      http.RoundTripper
	tokenFile string
}

// RoundTrip answers a POST itself: the client repeats it as a GET, for which a proxy may demand fewer rights.
func (r *roundTripper) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Method == http.MethodPost {
		if request.Body != nil {
			_ = request.Body.Close()
		}
		return &http.Response{StatusCode: http.StatusNotImplemented, Body: http.NoBody, Request: request}, nil
	}
	if r.tokenFile != "" {
		token, err := os.ReadFile(r.tokenFile)
		if err != nil {
			return nil, err
		}
		request = request.Clone(request.Context())
		request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
	response, err := r.base.RoundTrip(request)
	if err == nil {
		response.Body = http.MaxBytesReader(nil, response.Body, maxResponse)
	}
	return response, err
}

// query reports whether the cluster matches a query: its result has one sample, which is 0 or 1.
func (c *client) query(ctx context.Context, query string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	if err := c.connect(); err != nil {
		return false, err
	}
	result, _, err := c.api.Query(ctx, query, time.Now())
	if err != nil {
		return false, fmt.Errorf("executing PromQL query: %w", shorten(err))
	}
	vector, isVector := result.(model.Vector)
	switch {
	case !isVector:
		return false, fmt.Errorf("the result of its PromQL query is a %s: it must be a vector", result.Type())
	case len(vector) != 1:
		return false, fmt.Errorf("the result of its PromQL query has %d samples: it must have 1", len(vector))
	case vector[0].Value != 0 && vector[0].Value != 1:
		return false, fmt.Errorf("the result of its PromQL query is %v: it must be 0 or 1", vector[0].Value)
	default:
		return vector[0].Value == 1, nil
	}
}

// alerts returns the firing alerts.
func (c *client) alerts(ctx context.Context) ([]clusterversion.Alert, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	if err := c.connect(); err != nil {
		return nil, err
	}
	result, err := c.api.Alerts(ctx)
	var lookup *net.DNSError
	switch {
	case c.options.isOpenShifts && errors.As(err, &lookup) && lookup.IsNotFound:
		return nil, errMissing
	case err != nil:
		return nil, shorten(err)
	}
	var firing []clusterversion.Alert
	for _, alert := range result.Alerts {
		if alert.State == promv1.AlertStateFiring {
			firing = append(firing, clusterversion.Alert{
				Labels: texts(alert.Labels), Annotations: texts(alert.Annotations), Since: alert.ActiveAt,
			})
		}
	}
	return firing, nil
}

func texts(labels model.LabelSet) map[string]string {
	all := make(map[string]string, len(labels))
	for name, value := range labels {
		all[string(name)] = string(value)
	}
	return all
}

// shorten returns an error in one line that is not too long for a condition.
func shorten(err error) error {
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return fmt.Errorf("the response has more than %d bytes", tooLarge.Limit)
	case errors.Is(err, context.DeadlineExceeded):
		return errors.New("no response in time")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("the response ends too early")
	default:
		return errors.New(printable.Truncate(printable.Line(printable.RequestError(err).Error()), maxError))
	}
}
