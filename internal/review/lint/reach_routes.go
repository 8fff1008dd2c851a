package lint

import (
	"cmp"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// This rule is about hosts and paths that Ingresses no longer serve.

// A route is a host and a path of an Ingress.
type route struct {
	by      *manifest
	host    string // "" for all
	path    string
	isExact bool
	backend string
	class   string
	isTLS   bool
}

// routesOf returns the routes of a payload's Ingresses.
func routesOf(x *index) (found []route) {
	for _, m := range x.byKind[kinds.Ingress] {
		typed := convert[networkingv1.Ingress](m.Object().Object)
		if typed == nil || m.isTombstone {
			continue
		}
		class := m.annotations["kubernetes.io/ingress.class"]
		if typed.Spec.IngressClassName != nil {
			class = *typed.Spec.IngressClassName
		}
		if backend := typed.Spec.DefaultBackend; backend != nil {
			found = append(found, route{m, "", "/", false, backendOf(*backend), class, len(typed.Spec.TLS) > 0})
		}
		for _, rule := range typed.Spec.Rules {
			if rule.HTTP == nil {
				continue
			}
			isTLS := slices.ContainsFunc(typed.Spec.TLS, func(tls networkingv1.IngressTLS) bool {
				return len(tls.Hosts) == 0 || slices.ContainsFunc(tls.Hosts, func(host string) bool {
					return coversHost(host, rule.Host)
				})
			})
			for _, path := range rule.HTTP.Paths {
				isExact := path.PathType != nil && *path.PathType == networkingv1.PathTypeExact
				found = append(found,
					route{m, rule.Host, cmp.Or(path.Path, "/"), isExact, backendOf(path.Backend), class, isTLS})
			}
		}
	}
	return found
}

func backendOf(backend networkingv1.IngressBackend) string {
	if backend.Service == nil {
		return ""
	}
	return backend.Service.Name
}

// coversHost reports whether a host is another one, or a wildcard for it.
func coversHost(pattern, host string) bool {
	domain, isWild := strings.CutPrefix(pattern, "*")
	_, parent, _ := strings.Cut(host, ".")
	return pattern == "" || pattern == host || isWild && domain == "."+parent
}

// covers reports whether a route serves all requests that another one does.
func (r route) covers(other route) bool {
	isBelow := r.path == other.path || strings.HasPrefix(other.path, strings.TrimSuffix(r.path, "/")+"/")
	isSame := r.path == other.path && r.isExact == other.isExact
	return coversHost(r.host, other.host) && (isSame || !r.isExact && isBelow)
}

func checkLostRoute(s *subject, r *reporter) {
	routes := routesOf(s.index)
	seen := map[string]bool{}
	for _, old := range routesOf(s.previous) {
		for _, m := range s.byID[old.by.id] {
			key := old.by.id.String() + old.host
			field, why := s.lossOf(old, m, routes)
			if field != "" && !seen[key] && s.shareCluster(old.by, m) {
				seen[key] = true
				r.field(m, []string{"spec", field}, "%s:%d serves %s%s, and %s", old.by.where(), old.by.Line, old.host,
					old.path, why)
			}
		}
	}
}

// lossOf returns how a route of the previous payload is lost, and the field; "" if it is not.
func (s *subject) lossOf(old route, m *manifest, routes []route) (field, why string) {
	var found *route // the route that serves the same requests, in the same Ingress if there is one
	for i := range routes {
		isBetter := found == nil || routes[i].by == m
		if isBetter && routes[i].covers(old) && s.shareCluster(routes[i].by, m) {
			found = &routes[i]
		}
	}
	switch {
	case found == nil:
		return "rules", "no Ingress serves all of that now, so that clients get 404: keep the host, path and " +
			"pathType, or redirect clients"
	case old.isTLS && !found.isTLS:
		return "tls", "spec.tls has no certificate for that host now, so that browsers warn of the controller's own: " +
			"add the host there"
	case old.class != found.class && old.class != "" && found.by == m:
		return "ingressClassName", "the controller of ingressClassName " + old.class + " serves that no longer: keep it"
	default:
		return "", ""
	}
}

// checkTwoIngresses looks for Ingresses that serve the same host and path from different Services.
func checkTwoIngresses(s *subject, r *reporter) {
	first := map[route]route{}
	for _, other := range routesOf(s.index) {
		key := route{host: other.host, path: other.path, isExact: other.isExact, class: other.class}
		known, isKnown := first[key]
		first[key] = cmp.Or(known, other)
		if isKnown && known.by.id != other.by.id && known.backend != other.backend && other.host != "" &&
			!other.by.isCanary() && !known.by.isCanary() && s.shareCluster(known.by, other.by) {
			r.field(other.by, []string{"spec", "rules"}, "%s (%s:%d) serves %s%s too, from another Service: one of "+
				"them gets the requests of both: give it another host or path", known.by.id, known.by.Path,
				known.by.Line, other.host, other.path)
		}
	}
}

// isCanary reports whether an annotation of an Ingress makes it share a host with another one.
func (m *manifest) isCanary() bool {
	return slices.ContainsFunc(sortedKeys(m.annotations), func(key string) bool {
		return strings.Contains(key, "canary") || strings.Contains(key, "mergeable")
	})
}
