package capi_test

import (
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// The other reasons of the condition Deleting are those of the tests B1 to B7.

func TestInfrastructureThatCanNotBeLookedAtHoldsTheDeletion(t *testing.T) {
	s := newScene(t)
	m := s.machine("m1")
	m.Spec.InfrastructureRef = s.ref("TestRack", "r") // whose definition does not name the contract
	s.MustCreate(m)
	s.await("m1", func(m *clusterv1.Machine) bool { return slices.Contains(m.Finalizers, clusterv1.MachineFinalizer) })
	s.MustDelete(m)
	s.awaitDeleting("InternalError",
		"Failed to read TestRack: CustomResourceDefinition testracks.infra.example.com does not name "+
			"the version that keeps Cluster API's contract: label it, such as cluster.x-k8s.io/v1beta2=v1")
	definition := &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition"},
		ObjectMeta: metav1.ObjectMeta{Name: "testracks.infra.example.com"},
	}
	s.MustPatch(definition, `{"metadata": {"labels": {"cluster.x-k8s.io/v1beta2": "v1"}}}`)
	s.AwaitGone(m)
}

func TestInfrastructureThatCanNotBeDeletedHoldsTheDeletion(t *testing.T) {
	role := allow(t, "without-deletions", "get", "list", "watch", "patch")
	s := newSceneAs(t, "without-deletions")
	m, node := s.runs()
	s.MustDelete(m)
	s.awaitDeleting("InternalError", "Failed to delete TestMachine, please check controller logs for errors")
	s.expectInfrastructure()
	role.Rules[0].Verbs = append(role.Rules[0].Verbs, "delete")
	s.Must(s.Update(t.Context(), role))
	s.AwaitGone(m)
	s.AwaitGone(node)
}

func TestAFinalizerOfAnotherControllerOutlastsTheDeletion(t *testing.T) {
	s := newScene(t)
	m := s.machine("m1")
	m.Finalizers = []string{held}
	m, node := s.run(m)
	s.MustDelete(m)
	s.AwaitGone(node)
	s.awaitDeleting("DeletionCompleted", "Deletion completed")
	seen := s.await("m1", func(m *clusterv1.Machine) bool { return slices.Equal(m.Finalizers, []string{held}) })
	if seen.Status.Phase != "Deleting" {
		t.Errorf("the phase is %s", seen.Status.Phase)
	}
	s.MustPatch(m, `{"metadata": {"finalizers": null}}`)
	s.AwaitGone(m)
}

func TestLongDeletionIsReported(t *testing.T) {
	s := newScene(t)
	m, node := s.runs()
	s.addPod(node, "db", nil)
	budget := s.AddBudget("db", "db")
	s.MustDelete(m)
	s.awaitDeleting("DrainingNode", "disruption budget")
	s.ahead.Store(int64(16 * time.Minute))
	s.await("m1", func(m *clusterv1.Machine) bool {
		ready := meta.FindStatusCondition(m.Status.Conditions, "Ready")
		return ready.Message == "* Deleting: Machine deletion in progress since more than 15m, stage: DrainingNode, "+
			"delay likely due to PodDisruptionBudgets"
	})
	s.MustDelete(budget)
	s.AwaitGone(m)
}
