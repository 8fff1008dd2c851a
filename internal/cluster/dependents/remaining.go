package dependents

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/objectmeta"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// A Remainder is what would be left in a Namespace, or of a CustomResourceDefinition, if some other objects were
// deleted.
type Remainder struct {
	Objects []kinds.ID // in the order of their names
	Err     error      // why there may be more
}

// Remaining returns what is left in each of some Namespaces and CustomResourceDefinitions when other objects are
// deleted, and with them what the garbage collector removes. Objects that Kubernetes makes in every namespace don't
// count, and neither do those that are terminating, nor Events, Endpoints and Leases, which processes leave behind.
func Remaining(ctx context.Context, c *cluster.Cluster, containers,
	deleted []objectmeta.LiveMetadata) (map[types.UID]Remainder, error) {
	if len(containers) == 0 {
		return nil, nil
	}
	all, unknown, err := c.AllKinds(ctx)
	if err != nil {
		return nil, fmt.Errorf("find what is in namespaces and definitions: %w", err)
	}
	lists := listsOf(all, containers)
	group, inGroup := errgroup.WithContext(ctx)
	group.SetLimit(listsAtOnce)
	for _, l := range lists {
		group.Go(func() error {
			l.list(inGroup, c)
			return inGroup.Err()
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	gone := collected(lists, deleted)
	remainders := map[types.UID]Remainder{}
	for i := range containers {
		found := remainderOf(&containers[i], lists, gone)
		for version, why := range unknown {
			if containers[i].ID.GroupKind() == kinds.Namespace && found.Err == nil && !isMeasured(version) {
				found.Err = fmt.Errorf("objects of %s can't be listed: %w", version, printable.Error(why))
			}
		}
		remainders[containers[i].UID] = found
	}
	return remainders, nil
}

// A listedKind is the objects of a kind in a namespace, or of all namespaces.
type listedKind struct {
	in        *cluster.Resource
	namespace string
	objects   []contained
	err       error
}

// A contained object may be left in a Namespace, or of a definition.
type contained struct {
	id          kinds.ID
	uid         types.UID
	owners      []metav1.OwnerReference
	isIgnored   bool
	terminating bool
}

// listsOf returns what to list: all kinds in each Namespace, and all objects of each definition.
func listsOf(all []cluster.Resource, containers []objectmeta.LiveMetadata) []*listedKind {
	var lists []*listedKind
	for i := range all {
		in := &all[i]
		if !isCounted(*in) || isTransient(in.GroupKind()) {
			continue
		}
		isDefined := slices.ContainsFunc(containers, func(m objectmeta.LiveMetadata) bool {
			return m.ID.GroupKind() == kinds.CustomResourceDefinition && m.ID.Name == in.GroupResource().String()
		})
		if isDefined {
			lists = append(lists, &listedKind{in: in})
			continue
		}
		for _, m := range containers {
			if in.Namespaced && m.ID.GroupKind() == kinds.Namespace {
				lists = append(lists, &listedKind{in: in, namespace: m.ID.Name})
			}
		}
	}
	return lists
}

// isTransient reports whether objects of a kind are left behind by processes or follow from other objects.
func isTransient(kind schema.GroupKind) bool {
	switch kind {
	case schema.GroupKind{Kind: "Endpoints"}, schema.GroupKind{Group: "discovery.k8s.io", Kind: "EndpointSlice"},
		schema.GroupKind{Group: "coordination.k8s.io", Kind: "Lease"}:
		return true
	default:
		return false
	}
}

func (l *listedKind) list(ctx context.Context, c *cluster.Cluster) {
	l.err = c.EachMetadata(ctx, *l.in, l.namespace, metav1.ListOptions{}, func(m *metav1.PartialObjectMetadata) {
		l.objects = append(l.objects, contained{
			id: l.in.IDOf(m), uid: m.UID, owners: slices.Clone(m.OwnerReferences),
			terminating: m.DeletionTimestamp != nil,
			isIgnored:   isMadeByKubernetes(l.in.GroupKind(), m),
		})
	})
	if apierrors.IsNotFound(l.err) { // the kind has just gone
		l.err = nil
	}
}

// isMadeByKubernetes reports whether Kubernetes or OpenShift makes an object in every namespace, or a token of an
// account.
func isMadeByKubernetes(kind schema.GroupKind, m *metav1.PartialObjectMetadata) bool {
	switch kind {
	case schema.GroupKind{Kind: "ConfigMap"}:
		return slices.Contains([]string{"kube-root-ca.crt", "openshift-service-ca.crt"}, m.Name)
	case schema.GroupKind{Kind: "ServiceAccount"}:
		return slices.Contains([]string{"default", "builder", "deployer"}, m.Name)
	case schema.GroupKind{Kind: "Secret"}:
		return m.Annotations["kubernetes.io/service-account.uid"] != ""
	case schema.GroupKind{Group: "rbac.authorization.k8s.io", Kind: "RoleBinding"}:
		return slices.Contains([]string{"system:deployers", "system:image-builders", "system:image-pullers"}, m.Name)
	default:
		return false
	}
}

// collected returns the objects that are gone when some objects are deleted: those, and the ones that have owners of
// which none stays. An owner of a kind that was not listed stays.
func collected(lists []*listedKind, deleted []objectmeta.LiveMetadata) map[types.UID]bool {
	gone, exists := map[types.UID]bool{}, map[types.UID]bool{}
	isListed := map[listScope]bool{}
	for _, l := range lists {
		isListed[listScope{l.in.GroupKind(), l.namespace}] = l.err == nil
		for _, object := range l.objects {
			exists[object.uid] = true
			if object.terminating {
				gone[object.uid] = true
			}
		}
	}
	for i := range deleted {
		gone[deleted[i].UID] = true
	}
	stays := func(object contained) bool {
		return slices.ContainsFunc(object.owners, func(owner metav1.OwnerReference) bool {
			kind := schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).GroupKind()
			isAbsent := !exists[owner.UID] &&
				(isListed[listScope{kind, object.id.Namespace}] || isListed[listScope{kind, ""}])
			return !gone[owner.UID] && !isAbsent
		})
	}
	for isChanged := true; isChanged; {
		isChanged = false
		for _, l := range lists {
			for _, object := range l.objects {
				if !gone[object.uid] && len(object.owners) > 0 && !stays(object) {
					gone[object.uid], isChanged = true, true
				}
			}
		}
	}
	return gone
}

// A listScope is a kind in a namespace, or everywhere.
type listScope struct {
	kind      schema.GroupKind
	namespace string
}

// remainderOf returns the objects in a container that are not gone.
func remainderOf(container *objectmeta.LiveMetadata, lists []*listedKind, gone map[types.UID]bool) Remainder {
	var left Remainder
	isNamespace := container.ID.GroupKind() == kinds.Namespace
	for _, l := range lists {
		isDefined := !isNamespace && l.in.GroupResource().String() == container.ID.Name
		isIn := isNamespace && l.in.Namespaced && (l.namespace == container.ID.Name || l.namespace == "")
		if !isDefined && !isIn {
			continue
		}
		if l.err != nil && left.Err == nil {
			left.Err = fmt.Errorf("%s can't be listed: %w", l.in.GroupResource(), printable.Error(l.err))
		}
		for _, object := range l.objects {
			if !gone[object.uid] && !object.isIgnored && (isDefined || object.id.Namespace == container.ID.Name) &&
				!slices.Contains(left.Objects, object.id) {
				left.Objects = append(left.Objects, object.id)
			}
		}
	}
	slices.SortFunc(left.Objects, kinds.Compare)
	return left
}
