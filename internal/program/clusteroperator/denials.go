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

// Denials are the rights that a controller has lacked. A policy that refuses a request is none.
type Denials struct {
	mu      sync.Mutex
	lacking map[denial]bool
}

// A denial is a right that was lacked.
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

// denied is how the API server's authorizer refuses a request.
var denied = regexp.MustCompile(`cannot ([a-z]+) resource \\?"([a-z]+)(?:/([a-z]+))?\\?" in API group \\?"([a-z0-9.-]*)\\?"(?: in the namespace \\?"([a-z0-9-]+)\\?")?`)

// mostOfAnswer is how much of a refusal is read: it is a sentence or two.
const mostOfAnswer = 16 << 10

// Watch returns a connection whose refused requests are noted.
func (d *Denials) Watch(connection *rest.Config) *rest.Config {
	connection = rest.CopyConfig(connection)
	connection.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			answer, err := next.RoundTrip(request)
			if err == nil && answer.StatusCode == http.StatusForbidden {
				text, _ := io.ReadAll(io.LimitReader(answer.Body, mostOfAnswer))
				answer.Body = readCloser{io.MultiReader(bytes.NewReader(text), answer.Body), answer.Body}
				d.note(text)
			}
			return answer, err
		})
	})
	return connection
}

type roundTripper func(*http.Request) (*http.Response, error)

func (r roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return r(request) }

// A readCloser reads what was read already, and then the rest.
type readCloser struct {
	io.Reader
	io.Closer
}

func (d *Denials) note(answer []byte) {
	found := denied.FindSubmatch(answer)
	if found == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lacking == nil {
		d.lacking = map[denial]bool{}
	}
	d.lacking[denial{
		verb: string(found[1]), resource: string(found[2]), subresource: string(found[3]), group: string(found[4]), namespace: string(found[5]),
	}] = true
}

// stillLacking asks the API server for the rights that were lacked, forgets those that are given by now, and returns the others
// in words.
func (d *Denials) stillLacking(ctx context.Context, c client.Client) ([]string, error) {
	d.mu.Lock()
	asked := slices.Collect(maps.Keys(d.lacking))
	d.mu.Unlock()
	var words []string
	for _, denial := range asked {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: denial.verb, Group: denial.group, Resource: denial.resource, Subresource: denial.subresource, Namespace: denial.namespace,
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
		delete(d.lacking, denial)
		d.mu.Unlock()
	}
	slices.Sort(words)
	return slices.Compact(words), nil
}
