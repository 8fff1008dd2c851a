// Package demo applies a sample release to a sandbox, by the simplest honest
// means: one manifest after the other in the order of the file names, by
// server-side apply, waiting for what the next ones need.
//
// It is not the apply engine and has none of its virtues: no graph, no parallel
// work, no retries, no record. It goes when the engine comes. Run is the call to
// start from.
package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"

	"github.com/runlevel/runlevel/internal/sandbox"
)

// fieldManager is who owns the fields that are applied.
const fieldManager = "runlevel"

// discoveryPatience is how long a kind may take to be known.
const discoveryPatience = 10 * time.Second

// Run starts a sandbox, applies the release to it, and stops it. It prints each
// object when it is applied and ready.
func Run(ctx context.Context, release fs.FS, out, progress io.Writer) (err error) {
	objects, err := read(release)
	if err != nil {
		return err
	}
	fmt.Fprintln(progress, "starting a control plane on this machine")
	s, err := sandbox.Start(ctx, sandbox.Options{Progress: progress})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	fmt.Fprintf(progress, "Kubernetes is ready after %s\n", s.Took.Ready.Round(100*time.Millisecond))

	a, err := newApplier(s)
	if err != nil {
		return err
	}
	began := time.Now()
	for _, object := range objects {
		state, err := a.apply(ctx, object)
		if err != nil {
			return fmt.Errorf("apply %s: %w", title(object), err)
		}
		fmt.Fprintf(out, "%-44s  %-54s  %s\n", object.file, title(object), state)
	}
	fmt.Fprintf(progress, "%d objects applied and ready in %s; stopping the control plane\n",
		len(objects), time.Since(began).Round(time.Millisecond))
	return nil
}

// A manifest is one object and the file that it came from.
type manifest struct {
	*unstructured.Unstructured
	file string
}

func title(m manifest) string {
	if m.GetNamespace() == "" {
		return m.GetKind() + " " + m.GetName()
	}
	return m.GetKind() + " " + m.GetNamespace() + "/" + m.GetName()
}

// read returns the objects of all files, in the order of their names.
func read(release fs.FS) ([]manifest, error) {
	files, err := fs.Glob(release, "*.yaml")
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, errors.New("there are no manifests (*.yaml) in the release")
	}
	var objects []manifest
	for _, file := range files {
		content, err := fs.ReadFile(release, file)
		if err != nil {
			return nil, err
		}
		decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096)
		for {
			object := &unstructured.Unstructured{}
			err := decoder.Decode(&object.Object)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			if len(object.Object) > 0 { // else an empty document
				objects = append(objects, manifest{object, file})
			}
		}
	}
	return objects, nil
}

// An applier applies one object after the other.
type applier struct {
	mapper meta.ResettableRESTMapper
	client dynamic.Interface
}

func newApplier(s *sandbox.Sandbox) (*applier, error) {
	kinds, err := discovery.NewDiscoveryClientForConfig(s.Config)
	if err != nil {
		return nil, err
	}
	client, err := dynamic.NewForConfig(s.Config)
	if err != nil {
		return nil, err
	}
	return &applier{restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(kinds)), client}, nil
}

// apply applies an object, waits until it is ready, and says how it stands.
func (a *applier) apply(ctx context.Context, m manifest) (string, error) {
	kind := m.GroupVersionKind()
	mapping, err := a.mapping(ctx, kind)
	if err != nil {
		return "", err
	}
	var resource dynamic.ResourceInterface = a.client.Resource(mapping.Resource)
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		resource = a.client.Resource(mapping.Resource).Namespace(m.GetNamespace())
	}
	options := metav1.ApplyOptions{FieldManager: fieldManager, Force: true}
	if _, err := resource.Apply(ctx, m.GetName(), m.Unstructured, options); err != nil {
		return "", err
	}
	condition := awaited(kind.Kind)
	if condition == "" {
		return "applied", nil
	}
	_, err = sandbox.Await(ctx, resource, m.GetName(), sandbox.HasCondition(condition))
	return condition, err
}

// mapping finds the resource of a kind. A moment may pass between a CRD being
// established and discovery knowing it.
func (a *applier) mapping(ctx context.Context, kind schema.GroupVersionKind) (*meta.RESTMapping, error) {
	ctx, cancel := context.WithTimeout(ctx, discoveryPatience)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		mapping, err := a.mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if !meta.IsNoMatchError(err) {
			return mapping, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-tick.C:
			a.mapper.Reset()
		}
	}
}

// awaited names the condition that says that an object of a kind is ready, if one
// does.
func awaited(kind string) string {
	switch kind {
	case "CustomResourceDefinition":
		return "Established"
	case "Deployment":
		return "Available"
	default:
		return ""
	}
}
