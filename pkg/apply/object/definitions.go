package object

import (
	"context"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/pkg/cluster"
	"github.com/runlevel/runlevel/pkg/inventory"
	"github.com/runlevel/runlevel/pkg/kinds"
)

// definitions tell versions of CustomResourceDefinitions apart, as far as custom resources
// may notice.
type definitions struct {
	ctx     context.Context
	cluster *cluster.Cluster
	before  *inventory.Inventory

	mu    sync.Mutex
	known map[string]func() definition // by name
}

// A definition is what is known of one.
type definition struct {
	version   string
	isKnown   bool
	isUnasked bool // the server has not answered, and may do so when it is asked again
}

func newDefinitions(ctx context.Context, c *cluster.Cluster, before *inventory.Inventory) *definitions {
	return &definitions{ctx: ctx, cluster: c, before: before, known: map[string]func() definition{}}
}

// note takes in an object that was applied, if it is a definition, and says whether it is
// another than the one that was known.
func (d *definitions) note(id kinds.ID, object metav1.Object) (isNew bool) {
	if id.GroupKind() != kinds.CustomResourceDefinition {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	version := versionOf(object)
	if find := d.known[id.Name]; find != nil {
		known := find()
		isNew = known.isKnown && known.version != version
	}
	d.known[id.Name] = func() definition { return definition{version: version, isKnown: true} }
	return isNew
}

// versionOf is the version of the definition of a resource; nothing if it has none. It is
// only asked for once, and where it was not listed. Who may not read it, for example, does
// not know it.
func (d *definitions) versionOf(resource cluster.Resource) (version string, isKnown bool) {
	if kinds.ScopeOf(resource.GroupKind()) != kinds.Unknown {
		return "", true
	}
	name := resource.Resource + "." + resource.Group
	d.mu.Lock()
	find := d.known[name]
	if find == nil {
		find = sync.OnceValue(func() definition { return d.find(name) })
		d.known[name] = find
	}
	d.mu.Unlock()
	found := find()
	if found.isUnasked {
		d.mu.Lock()
		delete(d.known, name)
		d.mu.Unlock()
	}
	return found.version, found.isKnown
}

func (d *definitions) find(name string) definition {
	id := kinds.ID{Group: kinds.CustomResourceDefinition.Group, Kind: kinds.CustomResourceDefinition.Kind, Name: name}
	if head, found := d.before.Find(id); found {
		return definition{version: versionOf(head.Metadata()), isKnown: true}
	}
	resource, err := d.cluster.FindKind(d.ctx, kinds.CustomResourceDefinition)
	if err != nil {
		return definition{isUnasked: true}
	}
	object, err := d.cluster.Head(d.ctx, resource, "", name)
	if err != nil {
		return definition{isKnown: apierrors.IsNotFound(err), isUnasked: !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err)}
	}
	return definition{version: versionOf(object), isKnown: true}
}

func versionOf(definition metav1.Object) string {
	return fmt.Sprint(definition.GetUID(), definition.GetGeneration())
}
