package apply

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
	known map[string]func() (string, bool) // by name
}

func newDefinitions(ctx context.Context, c *cluster.Cluster, before *inventory.Inventory) *definitions {
	return &definitions{ctx: ctx, cluster: c, before: before, known: map[string]func() (string, bool){}}
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
		known, isKnown := find()
		isNew = isKnown && known != version
	}
	d.known[id.Name] = func() (string, bool) { return version, true }
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
		find = sync.OnceValues(func() (string, bool) { return d.find(name) })
		d.known[name] = find
	}
	d.mu.Unlock()
	return find()
}

func (d *definitions) find(name string) (version string, isKnown bool) {
	id := kinds.ID{Group: kinds.CustomResourceDefinition.Group, Kind: kinds.CustomResourceDefinition.Kind, Name: name}
	if head, found := d.before.Find(id); found {
		return versionOf(head.Metadata()), true
	}
	resource, err := d.cluster.FindKind(d.ctx, kinds.CustomResourceDefinition)
	if err != nil {
		return "", false
	}
	object, err := d.cluster.Head(d.ctx, resource, "", name)
	if err != nil {
		return "", apierrors.IsNotFound(err)
	}
	return versionOf(object), true
}

func versionOf(definition metav1.Object) string {
	return fmt.Sprint(definition.GetUID(), definition.GetGeneration())
}
