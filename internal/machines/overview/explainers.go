package overview

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/diagnosis"
	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// Explainers returns the explainers of machines, and of the objects that replace the machines of control planes.
func Explainers() []diagnosis.Explainer {
	return []diagnosis.Explainer{
		{
			Kinds:   []schema.GroupKind{Kind, ClusterAPIKind},
			Subject: "what holds the machine",
			Explain: func(ctx context.Context, c *cluster.Cluster, id kinds.ID) (*diagnosis.Explanation, error) {
				machine, err := Explain(ctx, c, id)
				if machine == nil || err != nil {
					return nil, err
				}
				return &diagnosis.Explanation{
					Messages: machine.Statements, Unknown: machine.Unknown,
					IsDone: machine.IsDone(), IsTerminating: machine.Stage != "",
				}, nil
			},
		},
		{
			Kinds:   []schema.GroupKind{ControlPlaneMachineSetKind, RunlevelControlPlaneKind},
			Subject: "what it waits for",
			Explain: func(ctx context.Context, c *cluster.Cluster, id kinds.ID) (*diagnosis.Explanation, error) {
				controlPlane, err := ExplainControlPlane(ctx, c, id)
				if controlPlane == nil || err != nil {
					return nil, err
				}
				return &diagnosis.Explanation{
					Messages: controlPlane.Statements, Unknown: controlPlane.Unknown, IsDone: controlPlane.IsDone,
				}, nil
			},
		},
	}
}
