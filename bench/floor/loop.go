package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"
)

// Custom resources are served a moment after their definition.
const (
	pollPeriod  = 25 * time.Millisecond
	pollTimeout = 30 * time.Second
)

// A loop applies folders.
type loop struct {
	objects   dynamic.Interface
	discovery discovery.DiscoveryInterface
	atOnce    int

	mapper meta.RESTMapper
}

func open(kubeconfig string, atOnce int) (*loop, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	l := &loop{atOnce: atOnce}
	if l.objects, err = dynamic.NewForConfig(config); err != nil {
		return nil, err
	}
	l.discovery, err = discovery.NewDiscoveryClientForConfig(config)
	return l, err
}

// A manifest is the object of a file.
type manifest struct {
	file string
	*unstructured.Unstructured
}

// run applies a folder, and returns its objects without namespaces and definitions. The error has a line for each
// object that the server has rejected.
func (l *loop) run(ctx context.Context, folder string) ([]manifest, error) {
	first, then, err := read(folder)
	if err != nil {
		return nil, err
	}
	if err := l.discover(); err != nil {
		return nil, err
	}
	rejected := l.sendAll(ctx, first)
	timed, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	for !l.hasAll(then) && pause(timed) == nil {
		if err := l.discover(); err != nil {
			return nil, err
		}
	}
	return then, errors.Join(rejected, l.sendAll(ctx, then))
}

// read reads the objects of a folder: namespaces and definitions, and the rest.
func read(folder string) (first, then []manifest, err error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil {
		return nil, nil, err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, nil, err
		}
		object := manifest{file, &unstructured.Unstructured{}}
		if err := yaml.Unmarshal(text, &object.Object); err != nil {
			return nil, nil, err
		}
		if kind := object.GetKind(); kind == "Namespace" || kind == "CustomResourceDefinition" {
			first = append(first, object)
		} else {
			then = append(then, object)
		}
	}
	return first, then, nil
}

// discover lists the kinds of the server.
func (l *loop) discover() error {
	groups, err := restmapper.GetAPIGroupResources(l.discovery)
	if err == nil {
		l.mapper = restmapper.NewDiscoveryRESTMapper(groups)
	}
	return err
}

// hasAll reports whether the server has the kinds of some objects.
func (l *loop) hasAll(objects []manifest) bool {
	for _, object := range objects {
		kind := object.GroupVersionKind()
		if _, err := l.mapper.RESTMapping(kind.GroupKind(), kind.Version); err != nil {
			return false
		}
	}
	return true
}

func (l *loop) sendAll(ctx context.Context, objects []manifest) error {
	rejected := make([]error, len(objects))
	var group errgroup.Group
	group.SetLimit(l.atOnce)
	for i, object := range objects {
		group.Go(func() error {
			if err := l.send(ctx, object); err != nil {
				rejected[i] = fmt.Errorf("%s: %s", object.file, strings.ReplaceAll(err.Error(), "\n", " "))
			}
			return nil
		})
	}
	_ = group.Wait()
	return errors.Join(rejected...)
}

// send applies an object, and retries until the server serves its kind.
func (l *loop) send(ctx context.Context, object manifest) error {
	kind := object.GroupVersionKind()
	mapping, err := l.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return err
	}
	var resource dynamic.ResourceInterface = l.objects.Resource(mapping.Resource)
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		resource = l.objects.Resource(mapping.Resource).Namespace(object.GetNamespace())
	}
	body, err := object.MarshalJSON()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	force := true
	for {
		_, err := resource.Patch(ctx, object.GetName(), types.ApplyPatchType, body,
			metav1.PatchOptions{FieldManager: "floor", Force: &force})
		if !apierrors.IsNotFound(err) {
			return err
		}
		if pause(ctx) != nil {
			return err
		}
	}
}

// pause waits for a poll period.
func pause(ctx context.Context) error {
	select {
	case <-time.After(pollPeriod):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
