package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/runlevel/runlevel/internal/cluster/objectwatch"
)

var crdResource = schema.GroupVersionResource{
	Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
}

// crdsAtOnce limits the CRDs that are created at the same time.
const crdsAtOnce = 8

// installCRDs creates CustomResourceDefinitions, and waits until each is established and its versions are served.
func installCRDs(ctx context.Context, config *rest.Config, client kubernetes.Interface,
	crds []*unstructured.Unstructured,
) error {
	definitions, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(crdsAtOnce)
	for _, crd := range crds {
		group.Go(func() error {
			if err := establishCRD(ctx, definitions.Resource(crdResource), crd); err != nil {
				return fmt.Errorf("CustomResourceDefinition %s: %w", crd.GetName(), err)
			}
			return awaitOK(ctx, client, versionPaths(crd)...)
		})
	}
	return group.Wait()
}

func establishCRD(ctx context.Context, definitions dynamic.ResourceInterface, crd *unstructured.Unstructured) error {
	apply := metav1.ApplyOptions{FieldManager: "sandbox", Force: true}
	if _, err := definitions.Apply(ctx, crd.GetName(), crd, apply); err != nil {
		return err
	}
	_, err := objectwatch.Await(ctx, definitions, crd.GetName(), objectwatch.HasCondition("Established"))
	return err
}

// versionPaths returns the paths of a CRD's versions. The API server serves them a moment after the CRD is established.
func versionPaths(crd *unstructured.Unstructured) []string {
	group, _, _ := unstructured.NestedString(crd.Object, "spec", "group")
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	plural, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "plural")
	var paths []string
	for _, version := range versions {
		if fields, ok := version.(map[string]any); ok && fields["served"] == true {
			paths = append(paths, fmt.Sprintf("/apis/%s/%s/%s", group, fields["name"], plural))
		}
	}
	return paths
}

// readCRDs reads all documents of the files and, in folders, of the YAML and JSON files directly in them.
func readCRDs(paths []string) ([]*unstructured.Unstructured, error) {
	var crds []*unstructured.Unstructured
	for _, path := range paths {
		files, err := crdFiles(path)
		if err != nil {
			return nil, fmt.Errorf("read CRDs: %w", err)
		}
		for _, file := range files {
			content, err := os.ReadFile(file)
			if err != nil {
				return nil, fmt.Errorf("read CRDs: %w", err)
			}
			documents, err := decodeCRDs(content)
			if err != nil {
				return nil, fmt.Errorf("read CRDs from %s: %w", file, err)
			}
			crds = append(crds, documents...)
		}
	}
	return crds, nil
}

func crdFiles(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() {
		return []string{path}, err
	}
	entries, err := os.ReadDir(path)
	var files []string
	for _, entry := range entries {
		if slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(entry.Name())) {
			files = append(files, filepath.Join(path, entry.Name()))
		}
	}
	return files, err
}

func decodeCRDs(content []byte) ([]*unstructured.Unstructured, error) {
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096)
	var crds []*unstructured.Unstructured
	for {
		crd := &unstructured.Unstructured{}
		switch err := decoder.Decode(&crd.Object); {
		case errors.Is(err, io.EOF):
			return crds, nil
		case err != nil:
			return nil, err
		case len(crd.Object) == 0: // an empty document
		case crd.GetKind() != "CustomResourceDefinition":
			return nil, fmt.Errorf("found a %s: only CustomResourceDefinitions can be loaded at the start",
				crd.GetKind())
		default:
			crds = append(crds, crd)
		}
	}
}
