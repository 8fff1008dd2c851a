// Package pages makes the pages on releases: a page of all releases, and for each release its graph, objects, history
// and plans; also the ClusterVersion and the machines.
//
// It only reads, and it judges nothing: it prints the state of package live, and the answers of why, diff and plan. It
// does not know HTTP.
//
// Each page has a file. Start with Site.Page.
package pages

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/internal/ui/live"
	"github.com/runlevel/runlevel/internal/ui/look"
)

// ErrNotFound is the error for an address without a page.
var ErrNotFound = errors.New("no such page")

// ErrForbidden is the error for a page that the user may not see. Errors that wrap it name the missing right.
var ErrForbidden = errors.New("not allowed")

// A Site has the pages on the releases of a cluster.
type Site struct {
	Hub *live.Hub
	// Allow returns an error that wraps ErrForbidden unless the user of the context has a right. It is nil if all reads
	// use the rights of the user anyway.
	Allow func(context.Context, authorizationv1.ResourceAttributes) error
	// Find returns the address under which a page is found in an export; "" if it is not there. It is nil on a server.
	Find func(address string) string
	// Links are further links beside those to the pages on the whole cluster.
	Links []look.Link

	plans planCache
}

// A Content is a page, and what changes it.
type Content struct {
	look.Page
	Topic live.Topic
}

// Page returns the page of an address.
func (s *Site) Page(ctx context.Context, address *url.URL) (*Content, error) {
	s.Hub.RefreshKinds()
	parts := strings.Split(strings.Trim(address.Path, "/"), "/")
	switch {
	case address.Path == "/":
		return s.releases(ctx, address.Query())
	case len(parts) == 1 && parts[0] == "cluster":
		return s.cluster(ctx)
	case len(parts) == 1 && parts[0] == "machines":
		return s.machines(ctx, address.Query())
	case len(parts) == 1 && parts[0] == "object":
		return s.object(ctx, "", "", address.Query())
	case len(parts) >= 3 && parts[0] == "releases":
		return s.ofRelease(ctx, parts[1], parts[2], parts[3:], address.Query())
	default:
		return nil, ErrNotFound
	}
}

// ofRelease returns a page on one release.
func (s *Site) ofRelease(ctx context.Context, namespace, name string, rest []string,
	query url.Values) (*Content, error) {
	// Whoever may write ConfigMaps in another namespace could name any object of the cluster in a record.
	if only := s.Hub.Namespace; lock.CheckRelease(name) != nil || only != "" && namespace != only {
		return nil, ErrNotFound
	}
	if err := s.mayRead(ctx, namespace, name); err != nil {
		return nil, err
	}
	views := map[string]func(context.Context, string, string, url.Values) (*Content, error){
		"":        s.release,
		"objects": s.objects,
		"object":  s.object,
		"history": s.history,
		"plan":    s.plan,
	}
	if view := views[strings.Join(rest, "/")]; view != nil {
		return view(ctx, namespace, name, query)
	}
	return nil, ErrNotFound
}

// mayRead returns an error unless the user may read the record of a release.
func (s *Site) mayRead(ctx context.Context, namespace, name string) error {
	return s.may(ctx, authorizationv1.ResourceAttributes{
		Namespace: namespace, Verb: "get", Resource: "configmaps", Name: lock.Name(name),
	})
}

// may returns an error unless the user has a right.
func (s *Site) may(ctx context.Context, right authorizationv1.ResourceAttributes) error {
	if s.Allow == nil {
		return nil
	}
	return s.Allow(ctx, right)
}

// releaseAddress returns the address of a page on a release.
func (s *Site) releaseAddress(namespace, name, view string, query ...string) string {
	return s.address("/releases/"+url.PathEscape(namespace)+"/"+url.PathEscape(name)+"/"+view, query...)
}

// address returns the address of a page with a query: pairs of a name and a value. Empty values are left out.
func (s *Site) address(path string, query ...string) string {
	address := strings.TrimSuffix(path, "/")
	if address == "" {
		address = "/"
	}
	values := url.Values{}
	for pair := range slices.Chunk(query, 2) {
		if pair[1] != "" {
			values.Set(pair[0], pair[1])
		}
	}
	if len(values) > 0 {
		address += "?" + values.Encode()
	}
	if s.Find != nil {
		return s.Find(address)
	}
	return address
}
