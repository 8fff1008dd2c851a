package clusteroperator

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"sync"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Denials are the rights that a controller has lacked. Refusals by admission policies are not counted.
type Denials struct {
	mu      sync.Mutex
	denials map[denial]bool
}

// A denial is a right that the controller has lacked.
type denial struct{ verb, resource, subresource, group, namespace string }

func (d denial) String() string {
	text := d.verb + " " + d.resource
	if d.subresource != "" {
		text += "/" + d.subresource
	}
	if d.group != "" {
		text += " of " + d.group
	}
	return text
}

// deniedMessage matches the message of the API server's authorizer for a refused request.
var deniedMessage = regexp.MustCompile(`cannot ([a-z]+) resource \\?"([a-z]+)(?:/([a-z]+))?\\?" in API group \\?"([a-z0-9.-]*)\\?"(?: in the namespace \\?"([a-z0-9-]+)\\?")?`)

// maxRefusal limits the bytes of a refusal that are read. Refusals have one or two sentences.
const maxRefusal = 16 << 10

// Watch returns a connection that records refused requests.
func (d *Denials) Watch(connection *rest.Config) *rest.Config {
	connection = rest.CopyConfig(connection)
	connection.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			answer, err := next.RoundTrip(request)
			if err == nil && answer.StatusCode == http.StatusForbidden {
				text, _ := io.ReadAll(io.LimitReader(answer.Body, maxRefusal))
				answer.Body = readCloser{io.MultiReader(bytes.NewReader(text), answer.Body), answer.Body}
				d.record(text)
			}
			return answer, err
		})
	})
	return connection
}

type roundTripper func(*http.Request) (*http.Response, error)

func (r roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return r(request) }

// A readCloser reads the part that was read already, and then the rest.
type readCloser struct {
	io.Reader
	io.Closer
}

// record records the right that a refusal of the API server names.
func (d *Denials) record(refusal []byte) {
	match := deniedMessage.FindSubmatch(refusal)
	if match == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.denials == nil {
		d.denials = map[denial]bool{}
	}
	d.denials[denial{
		verb: string(match[1]), resource: string(match[2]), subresource: string(match[3]), group: string(match[4]),
		namespace: string(match[5]),
	}] = true
}

// reviewDenials reviews the denials with the API server, removes the rights that are granted by now, and returns the
// others as text.
func (d *Denials) reviewDenials(ctx context.Context, c client.Client) ([]string, error) {
	d.mu.Lock()
	denials := slices.Collect(maps.Keys(d.denials))
	d.mu.Unlock()
	var words []string
	for _, denial := range denials {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: denial.verb, Group: denial.group, Resource: denial.resource, Subresource: denial.subresource,
				Namespace: denial.namespace,
			},
		}}
		if err := c.Create(ctx, review); err != nil {
			return nil, fmt.Errorf("ask for the right to %s: %w", denial, err)
		}
		if !review.Status.Allowed {
			words = append(words, denial.String())
			continue
		}
		d.mu.Lock()
		delete(d.denials, denial)
		d.mu.Unlock()
	}
	slices.Sort(words)
	return slices.Compact(words), nil
}
