package overview

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/runlevel/runlevel/internal/machines/capi/drainrules"
	"github.com/runlevel/runlevel/internal/machines/drain"
)

// ruledPodsOf lists the pods of the node of a machine by its drain rules, or adds why that is not possible to what is
// unknown.
func (g *machineGatherer) ruledPodsOf(ctx context.Context, node *corev1.Node, f *clusterAPIFacts) *nodePods {
	rules, err := g.drainRules(ctx, f.machine)
	if err != nil {
		f.unknown = append(f.unknown, inLine(err))
		return &nodePods{isUnknown: true}
	}
	return g.podsOf(ctx, node, rules, &f.unknown)
}

// drainRules returns the rules by which the controller drains the node of a machine.
func (g *machineGatherer) drainRules(ctx context.Context, m *clusterv1.Machine) (drain.PodRules, error) {
	listed, err := objectsOf[clusterv1.MachineDrainRule](ctx, g, kindOfClusterAPI("MachineDrainRule"),
		MachineQuery{Namespace: m.Namespace})
	if err != nil && !errors.Is(err, ErrNotServed) {
		return nil, err
	}
	cluster, rules := &clusterv1.Cluster{}, make([]clusterv1.MachineDrainRule, len(listed))
	for i := range listed {
		rules[i] = *listed[i]
	}
	if len(rules) > 0 { // they may select Clusters
		query := MachineQuery{Namespace: m.Namespace, Names: []string{m.Spec.ClusterName}}
		clusters, err := objectsOf[clusterv1.Cluster](ctx, g, kindOfClusterAPI("Cluster"), query)
		if err != nil {
			return nil, err
		}
		if len(clusters) > 0 {
			cluster = clusters[0]
		}
	}
	return drainrules.PodRules(g.cluster.Client, m, cluster, rules)
}

func kindOfClusterAPI(kind string) schema.GroupKind {
	return schema.GroupKind{Group: ClusterAPIKind.Group, Kind: kind}
}
