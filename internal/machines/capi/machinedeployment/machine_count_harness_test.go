package machinedeployment_test

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
)

// A machineCount counts the machines of a namespace, as a watch observes them.
type machineCount struct {
	machines     map[types.UID]bool // whether they have become available, and are not deleted
	most, fewest int
}

// watchMachines counts the machines of the namespace from now on, after each change. It returns a function that stops,
// and returns how many there were at most, and how many were available at least.
func (f *fixture) watchMachines() (stop func() (most, fewest int)) {
	f.Helper()
	watcher, err := client.NewWithWatch(stage.Sandbox(f).Config, client.Options{Scheme: machinetest.NewScheme(f)})
	if err != nil {
		f.Fatal(err)
	}
	var list clusterv1.MachineList
	if err := watcher.List(f.Context(), &list, client.InNamespace(f.Namespace)); err != nil {
		f.Fatal(err)
	}
	c := &machineCount{machines: map[types.UID]bool{}, fewest: len(list.Items)}
	for i := range list.Items {
		c.machines[list.Items[i].UID] = true // the deployment is complete
	}
	stream, err := watcher.Watch(f.Context(), &clusterv1.MachineList{}, client.InNamespace(f.Namespace),
		&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.ResourceVersion}})
	if err != nil {
		f.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for event := range stream.ResultChan() {
			c.take(event)
		}
	}()
	return func() (int, int) {
		stream.Stop()
		<-ended
		return c.most, c.fewest
	}
}

func (c *machineCount) take(event watch.Event) {
	machine, ok := event.Object.(*clusterv1.Machine)
	if !ok {
		return
	}
	// A rollout does not cause short outages: on a busy computer, a node may miss its heartbeats.
	_, isUpdating := machine.Annotations[clusterv1.UpdateInProgressAnnotation]
	c.machines[machine.UID] = machine.DeletionTimestamp == nil && !isUpdating &&
		(c.machines[machine.UID] || isAvailable(machine))
	if event.Type == watch.Deleted {
		delete(c.machines, machine.UID)
	}
	available := 0
	for _, isAvailable := range c.machines {
		if isAvailable {
			available++
		}
	}
	c.most, c.fewest = max(c.most, len(c.machines)), min(c.fewest, available)
}

func isAvailable(machine *clusterv1.Machine) bool {
	return machine.DeletionTimestamp == nil &&
		meta.IsStatusConditionTrue(machine.Status.Conditions, clusterv1.MachineAvailableCondition)
}
