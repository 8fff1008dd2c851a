package precondition

import (
	"context"
	"fmt"
	"strings"

	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/objects/deploymenthook"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/objects/ready"
	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/pkg/payload"
)

// The resources that an update may need in addition to those of its manifests.
var (
	namespaces     = schema.GroupResource{Resource: "namespaces"}
	configMaps     = schema.GroupResource{Resource: "configmaps"}
	leases         = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
	services       = schema.GroupResource{Resource: "services"}
	endpointSlices = schema.GroupResource{Group: "discovery.k8s.io", Resource: "endpointslices"}

	pods               = schema.GroupResource{Resource: "pods"}
	podLogs            = schema.GroupResource{Resource: "pods/log"}
	events             = schema.GroupResource{Resource: "events"}
	replicaSets        = schema.GroupResource{Group: "apps", Resource: "replicasets"}
	deploymentStatuses = schema.GroupResource{Group: "apps", Resource: "deployments/status"}
)

// A need is a right that an update needs, and the names of its objects: a role may grant the right for these names
// alone. A name is empty if the server does not check it.
type need struct {
	Right
	names []string
}

// needs are the needs of all manifests. Equal needs of several manifests are one need.
type needs struct {
	all []*need
	at  map[string]*need
}

// add adds the verbs that a manifest or its hooks need on a resource. The needs of the record, which are reported
// separately, have no manifest.
func (n *needs) add(m *payload.Manifest, right Right, name string, verbs ...string) {
	for _, verb := range verbs {
		right.Verb = verb
		key := fmt.Sprint(right, " ", m == nil)
		item := n.at[key]
		if item == nil {
			item = &need{Right: right}
			n.at[key] = item
			n.all = append(n.all, item)
		}
		item.names = append(item.names, name)
		if m != nil {
			item.Manifests = append(item.Manifests, m)
		}
	}
}

// findNeeds returns the rights that the update needs: on the record and the lock, and on the objects that are applied,
// deleted, and watched until they are ready.
func (input Input) findNeeds(places []place, newNamespace bool) []*need {
	n := &needs{at: map[string]*need{}}
	if newNamespace {
		n.add(nil, Right{Resource: namespaces}, "", "create")
	}
	for _, resource := range []schema.GroupResource{configMaps, leases} {
		right := Right{Resource: resource, Namespace: input.Namespace}
		n.add(nil, right, lock.Name(input.Record.Release), "get", "update")
		n.add(nil, right, "", "create")
	}
	for _, p := range places {
		if p.resource.Resource == "" {
			continue // a right on an unknown resource can't be reviewed
		}
		id := p.id()
		right := Right{Resource: p.resource.GroupResource(), Namespace: id.Namespace}
		addHookNeeds(n, p)
		switch {
		case p.manifest.IsTombstone():
			n.add(p.manifest, right, id.Name, "get", "delete")
			continue
		case p.manifest.IsCreateOnly():
			n.add(p.manifest, right, id.Name, "get")
			n.add(p.manifest, right, "", "create")
		default: // an apply may create, and then the server knows the name
			n.add(p.manifest, right, id.Name, "get", "create", "patch")
		}
		if ready.Awaits(p.manifest.Object(), input.Standard) {
			n.add(p.manifest, right, "", "list", "watch")
			input.addServiceNeeds(n, p.manifest)
		}
	}
	return n.all
}

// addServiceNeeds adds the rights to check the Services that the API server calls for an object.
func (input Input) addServiceNeeds(n *needs, m *payload.Manifest) {
	if input.Standard == ready.Upstream {
		return
	}
	for _, service := range kinds.CalledServices(m.Object()) {
		n.add(m, Right{Resource: services, Namespace: service.Namespace}, "", "list", "watch")
		n.add(m, Right{Resource: endpointSlices, Namespace: service.Namespace}, "", "list", "watch")
	}
}

// addHookNeeds adds the rights that the lifecycle hooks of a Deployment need in addition to its own.
func addHookNeeds(n *needs, p place) {
	if hooks, _ := deploymenthook.Parse(p.manifest.Object()); hooks == nil || p.manifest.IsTombstone() {
		return
	}
	id := p.id()
	add := func(resource schema.GroupResource, name string, verbs ...string) {
		n.add(p.manifest, Right{Resource: resource, Namespace: id.Namespace, IsForHooks: true}, name, verbs...)
	}
	add(pods, "", "get", "list", "watch", "create", "delete")
	add(podLogs, "", "get")
	add(replicaSets, "", "list")
	add(deploymentStatuses, id.Name, "patch")
	add(events, "", "create")
	if p.manifest.IsCreateOnly() { // others are patched in any case
		add(p.resource.GroupResource(), id.Name, "patch")
	}
}

// missingRights returns the rights that are not granted. For a user with all rights, it sends one review.
func (input Input) missingRights(ctx context.Context, c *cluster.Cluster, places []place) ([]Right, error) {
	everything := authorizationv1.ResourceAttributes{Verb: "*", Group: "*", Resource: "*"}
	if all, err := may(ctx, c, everything); all || err != nil {
		return nil, err
	}
	return missingOf(ctx, c, input.findNeeds(places, input.hasNoNamespace(ctx, c)))
}

// missingOf returns the parts of needs that are not granted.
func missingOf(ctx context.Context, c *cluster.Cluster, needed []*need) ([]Right, error) {
	missing := make([]*Right, len(needed))
	group, inGroup := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for i, need := range needed {
		group.Go(func() (err error) {
			missing[i], err = need.missing(inGroup, c)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	var found []Right
	for _, right := range missing {
		if right != nil {
			found = append(found, *right)
		}
	}
	return found, nil
}

// A NamedRight is a right on objects with some names: a role may grant it for those alone.
type NamedRight struct {
	Right
	Names []string
}

// Lacking returns the rights of a list that this user does not have. For a user with all rights, it sends one review.
func Lacking(ctx context.Context, c *cluster.Cluster, needed []NamedRight) ([]Right, error) {
	everything := authorizationv1.ResourceAttributes{Verb: "*", Group: "*", Resource: "*"}
	if all, err := may(ctx, c, everything); all || err != nil {
		return nil, err
	}
	needs := make([]*need, len(needed))
	for i, right := range needed {
		needs[i] = &need{Right: right.Right, names: right.Names}
	}
	return missingOf(ctx, c, needs)
}

// hasNoNamespace reports whether the namespace of the record does not exist yet.
func (input Input) hasNoNamespace(ctx context.Context, c *cluster.Cluster) bool {
	if input.Record.Newest() != nil {
		return false
	}
	_, err := c.Client.CoreV1().Namespaces().Get(ctx, input.Namespace, metav1.GetOptions{})
	return apierrors.IsNotFound(err)
}

// missing returns the part of a need that is not granted; nil if the whole need is granted. A role may grant a need for
// some names only: if the need is not granted for all names, missing reviews each name.
func (n *need) missing(ctx context.Context, c *cluster.Cluster) (*Right, error) {
	resource, subresource, _ := strings.Cut(n.Resource.Resource, "/")
	attributes := authorizationv1.ResourceAttributes{
		Verb:        n.Verb,
		Group:       n.Resource.Group,
		Resource:    resource,
		Subresource: subresource,
		Namespace:   n.Namespace,
	}
	if granted, err := may(ctx, c, attributes); granted || err != nil {
		return nil, err
	}
	missing, isGranted := n.Right, true
	missing.Manifests = nil
	for i, name := range n.names {
		granted := false
		if attributes.Name = name; name != "" {
			var err error
			if granted, err = may(ctx, c, attributes); err != nil {
				return nil, err
			}
		}
		isGranted = isGranted && granted
		if !granted && len(n.Manifests) > 0 {
			missing.Manifests = append(missing.Manifests, n.Manifests[i])
		}
	}
	if isGranted {
		return nil, nil
	}
	return &missing, nil
}

// may reports whether this user has a right.
func may(ctx context.Context, c *cluster.Cluster, attributes authorizationv1.ResourceAttributes) (bool, error) {
	review := &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &attributes},
	}
	answer, err := c.Client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	return answer.Status.Allowed, nil
}
