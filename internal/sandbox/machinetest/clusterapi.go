package machinetest

import (
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/runlevel/runlevel/internal/machines/infra/v1alpha1"
)

// NewCluster returns a Cluster c of the namespace, whose infrastructure no controller knows.
func (f *Fixture) NewCluster() *clusterv1.Cluster {
	cluster := &clusterv1.Cluster{ObjectMeta: f.Meta("c")}
	cluster.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{
		APIGroup: "infra.example.com",
		Kind:     "Rack",
		Name:     "r",
	}
	return cluster
}

// MachineSpec returns a template's spec of machines of the Cluster c: the KwokMachineTemplate small is for their
// infrastructure, and the KwokConfigTemplate plain for their bootstrap data.
func MachineSpec() clusterv1.MachineSpec {
	reference := func(kind, name string) clusterv1.ContractVersionedObjectReference {
		return clusterv1.ContractVersionedObjectReference{APIGroup: v1alpha1.GroupVersion.Group, Kind: kind, Name: name}
	}
	return clusterv1.MachineSpec{
		ClusterName: "c", InfrastructureRef: reference("KwokMachineTemplate", "small"),
		Bootstrap: clusterv1.Bootstrap{ConfigRef: reference("KwokConfigTemplate", "plain")},
	}
}
