// Package install contains the manifests of the operator, with which a cluster keeps and updates a release by itself.
// The manifests are numbered, so that they can also be part of a release.
//
// The package applies nothing: "runlevel install" applies the manifests, or "kubectl apply -k install".
//
// Start with Objects.
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

// Objects returns the objects of the manifests in their order: each one can be applied once those before it exist.
func Objects() []*unstructured.Unstructured { return embedded.Objects(manifests, "0000_*.yaml") }

// Monitoring returns the objects with which Prometheus monitors the operator, on clusters that serve their kinds.
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
