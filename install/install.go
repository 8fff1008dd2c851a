// Package install has the manifests of the operator: what a cluster needs to keep and update a
// release by itself. They are numbered, so that they may also be part of a release.
//
// It knows no cluster and applies nothing: "runlevel install" does, and "kubectl apply -k install".
//
// Objects is the call to start from.
package install

import (
	"embed"
	"io/fs"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/runlevel/runlevel/internal/text/embedded"
)

//go:embed 0000_*.yaml monitoring/0000_*.yaml
var manifests embed.FS

// Files returns the manifests, in files whose names sort them.
func Files() fs.FS { return manifests }

// Objects returns the objects of the manifests, in their order: each can be applied when those
// before it are there.
func Objects() []*unstructured.Unstructured { return embedded.Objects(manifests, "0000_*.yaml") }

// Monitoring returns the objects that have Prometheus watch the operator, on clusters that serve their kinds.
func Monitoring() []*unstructured.Unstructured {
	return embedded.Objects(manifests, "monitoring/0000_*.yaml")
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
