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

// What a definition defines is served a moment after it; this often we look again.
const (
	lookAgain = 25 * time.Millisecond
	patience  = 30 * time.Second
)

// A loop is how to apply a folder.
type loop struct {
	objects   dynamic.Interface
	discovery discovery.DiscoveryInterface
	atOnce    int

	places meta.RESTMapper
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

// run applies a folder, and returns what comes after its namespaces and definitions. It fails with a line for each object
// that was refused, which begins with its file.
func (l *loop) run(ctx context.Context, folder string) ([]manifest, error) {
	first, then, err := read(folder)
	if err != nil {
		return nil, err
	}
	if err := l.discover(); err != nil {
		return nil, err
	}
	refused := l.sendAll(ctx, first)
	timed, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for !l.hasAll(then) && pause(timed) == nil {
		if err := l.discover(); err != nil {
			return nil, err
		}
	}
	return then, errors.Join(refused, l.sendAll(ctx, then))
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

// discover asks which kinds the server has.
func (l *loop) discover() error {
	groups, err := restmapper.GetAPIGroupResources(l.discovery)
	if err == nil {
		l.places = restmapper.NewDiscoveryRESTMapper(groups)
	}
	return err
}

// hasAll says whether the server has the kinds of some objects.
func (l *loop) hasAll(objects []manifest) bool {
	for _, object := range objects {
		kind := object.GroupVersionKind()
		if _, err := l.places.RESTMapping(kind.GroupKind(), kind.Version); err != nil {
			return false
		}
	}
	return true
}

func (l *loop) sendAll(ctx context.Context, objects []manifest) error {
	refused := make([]error, len(objects))
	var group errgroup.Group
	group.SetLimit(l.atOnce)
	for i, object := range objects {
		group.Go(func() error {
			if err := l.send(ctx, object); err != nil {
				refused[i] = fmt.Errorf("%s: %s", object.file, strings.ReplaceAll(err.Error(), "\n", " "))
			}
			return nil
		})
	}
	_ = group.Wait()
	return errors.Join(refused...)
}

// send applies one, again if not all of the server knows its kind yet.
func (l *loop) send(ctx context.Context, object manifest) error {
	kind := object.GroupVersionKind()
	place, err := l.places.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return err
	}
	var in dynamic.ResourceInterface = l.objects.Resource(place.Resource)
	if place.Scope.Name() == meta.RESTScopeNameNamespace {
		in = l.objects.Resource(place.Resource).Namespace(object.GetNamespace())
	}
	body, err := object.MarshalJSON()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	force := true
	for {
		_, err := in.Patch(ctx, object.GetName(), types.ApplyPatchType, body, metav1.PatchOptions{FieldManager: "floor", Force: &force})
		if !apierrors.IsNotFound(err) {
			return err
		}
		if pause(ctx) != nil {
			return err
		}
	}
}

// pause waits a moment.
func pause(ctx context.Context) error {
	select {
	case <-time.After(lookAgain):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
