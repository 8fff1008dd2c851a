// Package manifests contains the payload of the machine controller, which is bundled with Runlevel: the objects that a
// cluster needs to create, drain and delete machines. It may be part of a release, or be applied separately.
//
// The package knows no cluster and applies nothing: "runlevel apply manifests --name machines" does.
//
// Start with Files.
package manifests

import (
	"embed"
	"io/fs"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/runlevel/runlevel/internal/text/embedded"
)

//go:embed 0000_*.yaml monitoring/0000_*.yaml image-references
var manifests embed.FS

//go:embed etcd-quorum-guard
var quorumGuard embed.FS

// QuorumGuard returns the manifests of the etcd quorum guard, which are a payload of their own.
func QuorumGuard() fs.FS {
	files, err := fs.Sub(quorumGuard, "etcd-quorum-guard")
	if err != nil {
		panic(err) // the path is a constant
	}
	return files
}

// Files returns the manifests, in files whose names sort them.
func Files() fs.FS { return manifests }

// Objects returns the objects of the manifests, in their order: each can be applied when those before it are there.
func Objects() []*unstructured.Unstructured { return embedded.Objects(manifests, "0000_*.yaml") }

// Monitoring returns the objects that have Prometheus watch the controller, on clusters that serve their kinds.
func Monitoring() []*unstructured.Unstructured {
	return embedded.Objects(manifests, "monitoring/0000_*.yaml")
}
