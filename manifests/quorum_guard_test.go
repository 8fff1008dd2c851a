package manifests_test

import (
	"os"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/internal/text/embedded"
	"github.com/runlevel/runlevel/manifests"
)

// The quorum guard is a payload of its own: what applies the manifests of the machine controller does not apply it.
func TestAClusterTakesTheQuorumGuard(t *testing.T) {
	t.Parallel()
	for _, object := range manifests.Objects() {
		if strings.HasPrefix(object.GetName(), "etcd-quorum-guard") {
			t.Errorf("%s %s is among those of the machine controller", object.GetKind(), object.GetName())
		}
	}
	c := stage.Connect(t)
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
	sandboxtest.Await(t, stage.SharedSandbox, deployments, "runlevel-etcd/etcd-quorum-guard", func(d *appsv1.Deployment) bool {
		return d != nil && d.Status.AvailableReplicas == 1
	})
}
