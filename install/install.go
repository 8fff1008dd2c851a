// Package install has the manifests of the operator: what a cluster needs to keep and update a
// release by itself. They are numbered, so that they may also be part of a release.
//
// It knows no cluster and applies nothing: "runlevel install" does, and "kubectl apply -k install".
//
// Objects is the call to start from.
package install

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
)

//go:embed 0000_*.yaml
var manifests embed.FS

// Files returns the manifests, in files whose names sort them.
func Files() fs.FS { return manifests }

// Objects returns the objects of the manifests, in their order: each can be applied when those
// before it are there.
func Objects() []*unstructured.Unstructured {
	files, err := fs.Glob(manifests, "*")
	var objects []*unstructured.Unstructured
	for _, file := range files {
		text, readErr := manifests.ReadFile(file)
		of, parseErr := parse(text)
		err = errors.Join(err, readErr, parseErr)
		objects = append(objects, of...)
	}
	if err != nil {
		panic(fmt.Sprintf("install: the manifests in this program can't be read: %v", err)) // a test reads them all
	}
	return objects
}

// Definitions returns the CustomResourceDefinitions among the objects.
func Definitions() []*unstructured.Unstructured {
	var definitions []*unstructured.Unstructured
	for _, object := range Objects() {
		if object.GetKind() == "CustomResourceDefinition" {
			definitions = append(definitions, object)
		}
	}
	return definitions
}

// parse returns the objects of the documents of a file.
func parse(text []byte) ([]*unstructured.Unstructured, error) {
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), len(text))
	var objects []*unstructured.Unstructured
	for {
		object := &unstructured.Unstructured{}
		if err := documents.Decode(&object.Object); errors.Is(err, io.EOF) {
			return objects, nil
		} else if err != nil {
			return nil, err
		}
		objects = append(objects, object)
	}
}
