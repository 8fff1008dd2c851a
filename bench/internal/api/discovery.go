package api

import (
	"context"
	"fmt"
)

// A Kind names a kind in a version.
type Kind struct{ APIVersion, Kind string }

// A Place is where objects of a kind are.
type Place struct {
	Prefix     string // as in /apis/apps/v1
	Resource   string // as in deployments
	Namespaced bool
}

// Path is where an object is; without a name, where one is made.
func (p Place) Path(namespace, name string) string {
	path := p.Prefix
	if p.Namespaced {
		path += "/namespaces/" + namespace
	}
	path += "/" + p.Resource
	if name != "" {
		path += "/" + name
	}
	return path
}

// JSON is the plainest answer there is.
const JSON = "application/json"

const aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// groups is what discovery says of groups, as far as we read it.
type groups struct {
	Items []struct {
		Metadata struct{ Name string }
		Versions []struct {
			Version   string
			Resources []struct {
				Resource, Scope string
				ResponseKind    struct{ Kind string }
			}
		}
	}
}

// Discover asks for all kinds that the server has: two requests.
func (s *Server) Discover(ctx context.Context) (map[Kind]Place, error) {
	places := map[Kind]Place{}
	for _, root := range []string{"/api", "/apis"} {
		var all groups
		if err := s.Get(ctx, root, aggregated, &all); err != nil {
			return nil, fmt.Errorf("what does the server have: %w", err)
		}
		all.addTo(places, root)
	}
	return places, nil
}

func (g groups) addTo(places map[Kind]Place, root string) {
	for _, group := range g.Items {
		for _, version := range group.Versions {
			apiVersion := version.Version
			if group.Metadata.Name != "" {
				apiVersion = group.Metadata.Name + "/" + apiVersion
			}
			for _, r := range version.Resources {
				places[Kind{apiVersion, r.ResponseKind.Kind}] = Place{
					Prefix: root + "/" + apiVersion, Resource: r.Resource, Namespaced: r.Scope == "Namespaced",
				}
			}
		}
	}
}
