// Package updateservice fetches the updates of a version from an update service. It speaks the protocol of OpenShift's
// update service (Cincinnati): one GET request, answered by a graph of versions, of edges between them, and of edges
// that have risks. Our own update service adds edges that open in phases. A registry can have the graphs, too.
//
// The answer of a service is not trusted: it is bounded, and updates that a ClusterVersion could not hold, or whose
// image is not named by digest, are left out with a reason. The package neither evaluates risks nor keeps answers.
//
// Start with Fetch.
package updateservice

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/blang/semver/v4"

	"github.com/runlevel/runlevel/internal/oci"
	"github.com/runlevel/runlevel/internal/operator/clusterversion"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/internal/text/reason"
)

// The reasons of errors, which are those of the cluster-version operator.
const (
	NoUpstream            = "NoUpstream"
	InvalidURI            = "InvalidURI"
	NoCurrentVersion      = "NoCurrentVersion"
	NoChannel             = "NoChannel"
	InvalidCurrentVersion = "InvalidCurrentVersion"
	RemoteFailed          = "RemoteFailed"    // the service can't be reached
	ResponseFailed        = "ResponseFailed"  // its answer is an error, or does not end
	ResponseInvalid       = "ResponseInvalid" // its response is not an update graph
	VersionNotFound       = "VersionNotFound"
)

// A Query is a request to a service.
type Query struct {
	URL          string
	Channel      string
	Version      string // version to update from
	Architecture string
	ClusterID    string // may be empty
	Insecure     bool   // plain http will do
}

// Bounds of an answer. A channel of OpenShift has some hundred versions, and is less than a tenth of these.
const (
	maxDuration = time.Minute
	maxBytes    = 8 << 20
)

// Fetch requests the updates of a version from a service. Its errors are of type *reason.Error.
func Fetch(ctx context.Context, client *http.Client, query Query) (*clusterversion.Offer, error) {
	address, err := query.address()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, maxDuration)
	defer cancel()
	if address.Scheme == registryScheme {
		text, err := query.readFile(ctx)
		if err != nil {
			return nil, err
		}
		return read(text, query)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address.String(), nil)
	if err != nil {
		return nil, &reason.Error{Reason: InvalidURI, Message: "spec.upstream is not the URL of a service"}
	}
	request.Header.Set("Accept", "application/json")
	request.Header.Set("User-Agent", "runlevel")
	response, err := client.Do(request)
	if err != nil {
		return nil, &reason.Error{Reason: RemoteFailed, Message: address.Host + " can't be reached", Err: cause(err)}
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		text := fmt.Sprintf("%s answers %d %s", address.Host, response.StatusCode, http.StatusText(response.StatusCode))
		return nil, &reason.Error{Reason: ResponseFailed, Message: text}
	}
	raw, err := io.ReadAll(io.LimitReader(response.Body, maxBytes+1))
	switch {
	case err != nil:
		return nil, &reason.Error{
			Reason:  ResponseFailed,
			Message: "read the answer of " + address.Host,
			Err:     cause(err),
		}
	case len(raw) > maxBytes:
		return nil, &reason.Error{
			Reason:  ResponseFailed,
			Message: fmt.Sprintf("%s answers with more than %d MiB, which is the limit", address.Host, maxBytes>>20),
		}
	}
	offer, err := read(raw, query)
	date, noDate := http.ParseTime(response.Header.Get("Date"))
	age, _ := strconv.Atoi(response.Header.Get("Age")) // seconds in a cache
	ahead := time.Since(date) - time.Duration(age)*time.Second
	if err == nil && noDate == nil && ahead > time.Minute { // less may be the duration of the request
		offer.Ahead = ahead
	}
	return offer, err
}

// registryScheme is the scheme of an upstream in a registry, with the files of "runlevel updates build --push".
const registryScheme = "oci"

// readFile returns the graph of the channel and the architecture from a registry.
func (q Query) readFile(ctx context.Context) ([]byte, error) {
	image := strings.TrimPrefix(q.URL, registryScheme+"://")
	location, err := oci.ParseRegistry(image, q.Insecure)
	if err != nil {
		return nil, &reason.Error{Reason: InvalidURI, Message: "spec.upstream is " + err.Error()}
	}
	name := q.Channel + "/" + q.Architecture + ".json"
	text, err := oci.ReadFile(ctx, location, name, oci.Options{Insecure: q.Insecure})
	switch {
	case errors.Is(err, oci.ErrNoFile):
		message := fmt.Sprintf("%s has no graph of channel %q for %s", short(image), short(q.Channel), q.Architecture)
		return nil, &reason.Error{Reason: ResponseFailed, Message: message}
	case err != nil:
		return nil, &reason.Error{Reason: RemoteFailed, Message: "read " + short(image), Err: cause(err)}
	}
	return text, nil
}

// address returns the URL of the query, or why there is none.
func (q Query) address() (*url.URL, error) {
	if q.URL == "" {
		return nil, &reason.Error{
			Reason: NoUpstream,
			Message: "no update service is configured: set spec.upstream to its URL, and spec.channel to one of " +
				"its channels",
		}
	}
	address, err := url.Parse(q.URL)
	if err != nil || address.Host == "" || !slices.Contains([]string{"https", "http", registryScheme}, address.Scheme) {
		return nil, &reason.Error{
			Reason: InvalidURI,
			Message: "spec.upstream is not the URL of a service: write https://HOST/PATH, or " +
				"oci://REGISTRY/REPOSITORY:TAG",
		}
	}
	if address.Scheme == "http" && !q.Insecure {
		return nil, &reason.Error{
			Reason: InvalidURI,
			Message: "spec.upstream is of plain http, where anyone on the way could offer an image: use https, or " +
				"start the operator with --insecure-registry",
		}
	}
	if q.Version == "" {
		return nil, &reason.Error{Reason: NoCurrentVersion, Message: "the release has no version"}
	}
	if q.Channel == "" {
		return nil, &reason.Error{
			Reason:  NoChannel,
			Message: "no channel is configured: set spec.channel to one of the update service",
		}
	}
	if _, err := semver.Parse(q.Version); err != nil {
		return nil, &reason.Error{
			Reason:  InvalidCurrentVersion,
			Message: fmt.Sprintf("the version %q of the release is not a semantic version", short(q.Version)),
		}
	}
	values := address.Query()
	for key, value := range map[string]string{"arch": q.Architecture, "channel": q.Channel, "id": q.ClusterID,
		"version": q.Version} {
		if value != "" {
			values.Set(key, value)
		}
	}
	address.RawQuery = values.Encode()
	return address, nil
}

// cause returns why a request failed, in a short line.
func cause(err error) error { return errors.New(short(printable.RequestError(err).Error())) }
