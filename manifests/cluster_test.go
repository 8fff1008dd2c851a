package manifests_test

import (
	"os"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/manifests"
)

var shared = machinetest.New(sandbox.Options{})

func TestMain(m *testing.M) { os.Exit(shared.Run(m)) }

// apply applies the manifests of some kinds; all but the ClusterOperator, whose kind is not served here, if none is
// named.
func apply(t *testing.T, kinds ...string) {
	t.Helper()
	c := shared.Connect(t)
	for _, object := range manifests.Objects() {
		if object.GetKind() == "ClusterOperator" || len(kinds) > 0 && !isOf(object, kinds) {
			continue
		}
		for _, warning := range sandboxtest.ApplyObject(t, c, object).Warnings {
			t.Errorf("%s %s: %s", object.GetKind(), object.GetName(), warning)
		}
	}
}

func isOf(object *unstructured.Unstructured, kinds []string) bool {
	for _, kind := range kinds {
		if object.GetKind() == kind {
			return true
		}
	}
	return false
}

// The API server warns if a Deployment violates pod security, and checks the types of the expressions of policies. Pods
// are only created if pod security, quota and priority allow them.
func TestClusterAcceptsTheManifests(t *testing.T) {
	t.Parallel()
	apply(t)
	deployments := appsv1.SchemeGroupVersion.WithResource("deployments")
	sandboxtest.Await(t, shared.SharedSandbox, deployments, "runlevel-machines/machine-controller",
		func(d *appsv1.Deployment) bool {
			return d != nil && d.Status.AvailableReplicas == 1
		})
	policies := admissionv1.SchemeGroupVersion.WithResource("validatingadmissionpolicies")
	for _, name := range []string{"machine-controller-machines", "machine-controller-machinesets",
		"machine-controller-nodes", "machine-controller-extensions-cluster-api"} {
		checked := sandboxtest.Await(t, shared.SharedSandbox, policies, name,
			func(p *admissionv1.ValidatingAdmissionPolicy) bool {
				return p != nil && p.Status.TypeChecking != nil && p.Status.ObservedGeneration == p.Generation
			})
		for _, warning := range checked.Status.TypeChecking.ExpressionWarnings {
			t.Errorf("%s: %s: %s", name, warning.FieldRef, warning.Warning)
		}
	}
}
