package manifests_test

import (
	"io/fs"
	"os"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/internal/text/embedded"
	"github.com/runlevel/runlevel/manifests"
)

// The quorum guard is a payload of its own: what applies the manifests of the machine controller does not apply it.
func TestClusterAcceptsTheQuorumGuard(t *testing.T) {
	t.Parallel()
	for _, object := range manifests.Objects() {
		if strings.HasPrefix(object.GetName(), "etcd-quorum-guard") {
			t.Errorf("%s %s is among those of the machine controller", object.GetKind(), object.GetName())
		}
	}
	c := shared.Connect(t)
	for _, object := range embedded.Objects(os.DirFS("etcd-quorum-guard"), "0000_40_etcd-quorum-guard_*.yaml") {
		if got := object.GetAnnotations()["capability.openshift.io/name"]; got != "MachineAPI+EtcdQuorumGuard" {
			t.Errorf("%s %s has capability %q", object.GetKind(), object.GetName(), got)
		}
		if object.GetKind() == "ClusterOperator" { // whose kind is not served here
			continue
		}
		for _, warning := range sandboxtest.ApplyObject(t, c, object).Warnings {
			t.Errorf("%s %s: %s", object.GetKind(), object.GetName(), warning)
		}
	}
	deployments := appsv1.SchemeGroupVersion.WithResource("deployments")
	sandboxtest.Await(t, shared.SharedSandbox, deployments, "runlevel-etcd/etcd-quorum-guard",
		func(d *appsv1.Deployment) bool {
			return d != nil && d.Status.AvailableReplicas == 1
		})
}

// The alerts of the guard are of its capability, and can be left out; the reader of its metrics is one that a cluster
// takes.
func TestMonitoringOfTheQuorumGuard(t *testing.T) {
	t.Parallel()
	objects := embedded.Objects(os.DirFS("etcd-quorum-guard"), "monitoring/0000_90_etcd-quorum-guard_*.yaml")
	if len(objects) != 5 {
		t.Errorf("there are %d objects", len(objects))
	}
	for _, object := range objects {
		for name, want := range map[string]string{
			"capability.openshift.io/name":                    "MachineAPI+EtcdQuorumGuard",
			"exclude.release.openshift.io/without-monitoring": "true",
		} {
			if got := object.GetAnnotations()[name]; got != want {
				t.Errorf("%s %s has %s: %q, want %q", object.GetKind(), object.GetName(), name, got, want)
			}
		}
	}
}

// In a release, the version is replaced where it stands as a build of releases expects it.
func TestABuildOfAReleaseFindsTheVersionOfTheQuorumGuard(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"0000_40_etcd-quorum-guard_04_deployment.yaml",
		"0000_40_etcd-quorum-guard_05_clusteroperator.yaml"} {
		if text, err := fs.ReadFile(manifests.QuorumGuard(), file); err != nil ||
			!strings.Contains(string(text), ": 0.0.1-snapshot\n") {
			t.Errorf("%s does not have the version of the release: %v", file, err)
		}
	}
}
