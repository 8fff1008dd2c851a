// Package embedded reads the manifests that are compiled into a program. Those of the operator are in install, those of
// the machine controller in manifests.
//
// The package does not load releases: it filters nothing, and returns all objects unchanged. It returns no errors,
// because tests of the packages with the files check that all files can be read.
//
// Start with Objects.
package embedded

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// Objects returns the objects of the files that match a pattern, in the order of the files.
func Objects(files fs.FS, pattern string) []*unstructured.Unstructured {
	names, err := fs.Glob(files, pattern)
	var objects []*unstructured.Unstructured
	for _, name := range names {
		text, readErr := fs.ReadFile(files, name)
		lives, parseErr := parse(text)
		err = errors.Join(err, readErr, parseErr)
		objects = append(objects, lives...)
	}
	if err != nil {
		panic(fmt.Sprintf("the manifests in this program can't be read: %v", err)) // a test reads them all
	}
	return objects
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
