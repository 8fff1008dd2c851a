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
	m.Spec.InfrastructureRef = s.ref("TestRack", "r") // whose definition says nothing of the contract
	s.create(m)
	s.await("m1", func(m *clusterv1.Machine) bool { return slices.Contains(m.Finalizers, clusterv1.MachineFinalizer) })
	s.delete(m)
	s.awaitDeleting("InternalError", "Failed to look at TestRack: CustomResourceDefinition testracks.infra.example.com does not name "+
		"the version that keeps Cluster API's contract: label it, such as cluster.x-k8s.io/v1beta2=v1")
	definition := &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition"},
		ObjectMeta: metav1.ObjectMeta{Name: "testracks.infra.example.com"},
	}
	s.change(definition, `{"metadata": {"labels": {"cluster.x-k8s.io/v1beta2": "v1"}}}`)
	s.awaitGone(m)
}

func TestInfrastructureThatCanNotBeDeletedHoldsTheDeletion(t *testing.T) {
	role := allow(t, "without-deletions", "get", "list", "watch", "patch")
	s := newSceneAs(t, "without-deletions")
	m, node := s.runs()
	s.delete(m)
	s.awaitDeleting("InternalError", "Failed to delete TestMachine, please check controller logs for errors")
	s.expectInfrastructure()
	role.Rules[0].Verbs = append(role.Rules[0].Verbs, "delete")
	if err := s.client.Update(t.Context(), role); err != nil {
		t.Fatal(err)
	}
	s.awaitGone(m)
	s.awaitGone(node)
}

func TestAFinalizerOfAnotherControllerOutlastsTheDeletion(t *testing.T) {
	s := newScene(t)
	m := s.machine("m1")
	m.Finalizers = []string{held}
	m, node := s.run(m)
	s.delete(m)
	s.awaitGone(node)
	s.awaitDeleting("DeletionCompleted", "Deletion completed")
	seen := s.await("m1", func(m *clusterv1.Machine) bool { return slices.Equal(m.Finalizers, []string{held}) })
	if seen.Status.Phase != "Deleting" {
		t.Errorf("the phase is %s", seen.Status.Phase)
	}
	s.change(m, `{"metadata": {"finalizers": null}}`)
	s.awaitGone(m)
}

func TestADeletionThatTakesLongIsTold(t *testing.T) {
	s := newScene(t)
	m, node := s.runs()
	s.addPod(node, "db", nil)
	budget := s.addBudget("db")
	s.delete(m)
	s.awaitDeleting("DrainingNode", "disruption budget")
	s.ahead.Store(int64(16 * time.Minute))
	s.await("m1", func(m *clusterv1.Machine) bool {
		ready := meta.FindStatusCondition(m.Status.Conditions, "Ready")
		return ready.Message == "* Deleting: Machine deletion in progress since more than 15m, stage: DrainingNode, "+
			"delay likely due to PodDisruptionBudgets"
	})
	s.delete(budget)
	s.awaitGone(m)
}
