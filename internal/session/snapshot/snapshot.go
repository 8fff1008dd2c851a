// Package snapshot reads the objects of a release on a cluster, and the objects that affect it: definitions,
// Namespaces, classes, quotas, budgets and admission policies. A rehearsal begins with it, so that the update of this
// cluster is tried, and not that of the files.
//
// A snapshot is a stream of YAML: a head, and then objects in the order in which they can be created (clean.go). Values
// of Secrets are not in it. It is written for people to read before they pass it on.
//
// Write writes a snapshot, and Read reads it. Start with Take.
package snapshot

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/objectmeta"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// A Snapshot contains the objects of a release on a cluster, and the objects that affect it.
type Snapshot struct {
	Head
	Objects []*unstructured.Unstructured // objects in the order in which they can be created
}

// A Head describes a snapshot.
type Head struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Release    string    `json:"release"`
	Version    string    `json:"version,omitempty"` // version that was applied last
	Namespace  string    `json:"namespace"`         // namespace of the record
	Kubernetes string    `json:"kubernetes"`
	Taken      time.Time `json:"taken"`
	Webhooks   []Webhook `json:"webhooks,omitempty"` // webhooks that are called for objects of the release
	Unread     []string  `json:"unread,omitempty"`   // resources that could not be read
}

// A Webhook is one of the cluster that the API server calls when objects of some kinds are written.
type Webhook struct {
	Name          string   `json:"name"`
	Configuration string   `json:"configuration"`
	Resources     []string `json:"resources"` // such as apps/deployments
}

// The identity of a head.
const (
	headVersion = "runlevel.dev/v1alpha1"
	headKind    = "Snapshot"
)

// ErrUnknown is the error for a release of which the cluster has no record.
var ErrUnknown = errors.New("the cluster has no record of the release")

// around are the kinds of objects that a release finds on a cluster, of which all are read; those in a Namespace only
// of the Namespaces of the release.
var around = []schema.GroupKind{
	kinds.PriorityClass,
	kinds.StorageClass,
	kinds.IngressClass,
	kinds.RuntimeClass,
	kinds.ValidatingAdmissionPolicy,
	kinds.ValidatingAdmissionPolicyBinding,
	kinds.MutatingAdmissionPolicy,
	kinds.MutatingAdmissionPolicyBinding,
	kinds.ResourceQuota,
	kinds.LimitRange,
	kinds.PodDisruptionBudget,
	kinds.HorizontalPodAutoscaler,
}

// A taker takes a snapshot.
type taker struct {
	cluster  *cluster.Cluster
	snapshot *Snapshot
	objects  map[kinds.ID]*unstructured.Unstructured
}

// Take takes a snapshot of a release with a record in a namespace. The head names the objects that can't be read.
func Take(ctx context.Context, c *cluster.Cluster, release, namespace string) (*Snapshot, error) {
	known, exists, err := record.NewStore(c.Client, namespace, release).Load(ctx)
	if err != nil {
		return nil, err
	}
	if !exists {
		return nil, fmt.Errorf("%w %s in namespace %s", ErrUnknown, release, namespace)
	}
	version, err := c.Client.Discovery().ServerVersion()
	if err != nil {
		return nil, err
	}
	t := &taker{c, &Snapshot{Head: Head{
		APIVersion: headVersion, Kind: headKind, Release: release, Namespace: namespace, Kubernetes: version.GitVersion,
		Taken: c.Now().UTC().Truncate(time.Second),
	}}, map[kinds.ID]*unstructured.Unstructured{}}
	if newest := known.Newest(); newest != nil {
		t.snapshot.Version = newest.Version
	}
	t.takeRelease(ctx, known)
	t.takeRecord(ctx, release, namespace)
	t.takeAround(ctx)
	for _, object := range t.objects {
		t.snapshot.Objects = append(t.snapshot.Objects, clean(object))
	}
	slices.SortFunc(t.snapshot.Objects, inOrder)
	return t.snapshot, context.Cause(ctx)
}

// takeRelease takes the objects of the release.
func (t *taker) takeRelease(ctx context.Context, known *record.Record) {
	for _, kind := range known.GroupKinds() {
		for _, object := range t.list(ctx, kind, "", objectmeta.ReleaseLabel+"="+known.Release) {
			if metav1.GetControllerOf(&object) == nil { // controllers copy labels
				t.add(&object)
			}
		}
	}
}

// takeRecord takes the record of the release.
func (t *taker) takeRecord(ctx context.Context, release, namespace string) {
	object, err := t.cluster.Get(ctx, kinds.NewID(kinds.ConfigMap, namespace, lock.Name(release)))
	if err == nil { // otherwise only its copy is known
		unstructured.RemoveNestedField(object.Object, "binaryData") // fingerprints of objects of this cluster
		t.add(object)
	}
}

// takeAround takes the objects that affect the release.
func (t *taker) takeAround(ctx context.Context) {
	namespaces, groupKinds := map[string]bool{}, map[schema.GroupKind]bool{}
	for id := range t.objects {
		namespaces[id.Namespace], groupKinds[id.GroupKind()] = true, true
	}
	for _, kind := range around {
		for _, object := range t.list(ctx, kind, "", "") {
			isTheirs := strings.HasPrefix(object.GetName(), "system-") || metav1.GetControllerOf(&object) != nil
			if !isTheirs && (object.GetNamespace() == "" || namespaces[object.GetNamespace()]) {
				t.add(&object)
			}
		}
	}
	for _, object := range t.list(ctx, kinds.Namespace, "", "") {
		if namespaces[object.GetName()] {
			t.add(&object)
		}
	}
	for _, object := range t.list(ctx, kinds.CustomResourceDefinition, "", "") {
		if groupKinds[kinds.DefinedBy(&object)] {
			t.add(&object)
		}
	}
	t.takeWebhooks(ctx, groupKinds)
}

// add adds an object, once, unless it is terminating.
func (t *taker) add(object *unstructured.Unstructured) {
	if object.GetDeletionTimestamp() == nil {
		t.objects[kinds.IDOf(object)] = object
	}
}

// list reads the objects of a kind; none if the cluster does not have the kind, or they may not be read.
func (t *taker) list(ctx context.Context, kind schema.GroupKind, namespace,
	selector string) []unstructured.Unstructured {
	objects, err := t.cluster.List(ctx, kind, namespace, selector)
	if err != nil && !errors.Is(err, cluster.ErrNotServed) && !apierrors.IsNotFound(err) {
		t.snapshot.Unread = append(t.snapshot.Unread, fmt.Sprintf("%s: %s", kind, printable.Line(err.Error())))
	}
	return objects
}

// takeWebhooks names the webhooks that are called for objects of kinds.
func (t *taker) takeWebhooks(ctx context.Context, groupKinds map[schema.GroupKind]bool) {
	resources := map[schema.GroupResource]bool{}
	for kind := range groupKinds {
		if resource, err := t.cluster.FindKind(ctx, kind); err == nil {
			resources[resource.GroupVersionResource.GroupResource()] = true
		}
	}
	for _, kind := range []schema.GroupKind{kinds.ValidatingWebhookConfiguration, kinds.MutatingWebhookConfiguration} {
		for _, object := range t.list(ctx, kind, "", "") {
			webhooks, _, _ := unstructured.NestedSlice(object.Object, "webhooks")
			for _, webhook := range webhooks {
				fields, _ := webhook.(map[string]any)
				if called := calledFor(fields, resources); len(called) > 0 {
					name, _ := fields["name"].(string)
					t.snapshot.Webhooks = append(t.snapshot.Webhooks,
						Webhook{name, kind.Kind + " " + object.GetName(), called})
				}
			}
		}
	}
	slices.SortFunc(t.snapshot.Webhooks, func(a, b Webhook) int {
		return cmp.Or(cmp.Compare(a.Configuration, b.Configuration), cmp.Compare(a.Name, b.Name))
	})
}

// calledFor returns the resources for which a webhook is called.
func calledFor(webhook map[string]any, resources map[schema.GroupResource]bool) (called []string) {
	rules, _, _ := unstructured.NestedSlice(webhook, "rules")
	for resource := range resources {
		for _, rule := range rules {
			fields, _ := rule.(map[string]any)
			groups, _, _ := unstructured.NestedStringSlice(fields, "apiGroups")
			names, _, _ := unstructured.NestedStringSlice(fields, "resources")
			isGroup := slices.Contains(groups, "*") || slices.Contains(groups, resource.Group)
			isName := slices.ContainsFunc(names, func(name string) bool {
				return name == "*" || name == "*/*" || name == resource.Resource
			})
			if isGroup && isName && !slices.Contains(called, resource.String()) {
				called = append(called, resource.String())
			}
		}
	}
	slices.Sort(called)
	return called
}

// Write writes a snapshot as a stream of YAML documents.
func (s *Snapshot) Write(out io.Writer) error {
	var text bytes.Buffer
	head, err := yaml.Marshal(s.Head)
	if err != nil {
		return err
	}
	text.Write(head)
	for _, object := range s.Objects {
		written, err := yaml.Marshal(object.Object)
		if err != nil {
			return err
		}
		text.WriteString("---\n")
		text.Write(written)
	}
	_, err = out.Write(text.Bytes())
	return err
}

// Read reads a snapshot.
func Read(reader io.Reader) (*Snapshot, error) {
	decoder := utilyaml.NewYAMLToJSONDecoder(reader)
	s := &Snapshot{}
	if err := decoder.Decode(&s.Head); err != nil || s.APIVersion != headVersion || s.Kind != headKind {
		return nil, fmt.Errorf("not a snapshot: the first document of a snapshot has kind %s of %s; \"runlevel "+
			"snapshot\" writes it", headKind, headVersion)
	}
	for number := 2; ; number++ {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return s, nil
		}
		if err != nil {
			return nil, fmt.Errorf("document %d: %s", number, printable.Line(err.Error()))
		}
		if object.GetKind() == "" || object.GetAPIVersion() == "" || object.GetName() == "" {
			return nil, fmt.Errorf("document %d is not an object: kind, apiVersion or name is missing", number)
		}
		s.Objects = append(s.Objects, object)
	}
}
