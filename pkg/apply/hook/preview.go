package hook

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/pkg/lifecycle"
)

// Preview returns the hooks that an apply would run, in their order. The cluster is asked whether it would take their
// pods: the error of a stage is its answer.
func (r *Runner) Preview(ctx context.Context) (stages []lifecycle.Stage, refused map[lifecycle.Stage]error, err error) {
	facts, err := r.look(ctx, "")
	if err != nil {
		return nil, nil, err
	}
	if facts.Live != nil {
		isChanged, err := r.objects.ChangesTemplate()
		if err != nil {
			return nil, nil, err
		}
		facts.IsChanged = &isChanged
	}
	stages, refused = r.rollout.Due(facts), map[lifecycle.Stage]error{}
	for _, stage := range stages {
		pod := r.rollout.NextPod(stage, facts)
		_, refused[stage] = r.cluster.Client.CoreV1().Pods(r.id.Namespace).Create(ctx, pod, metav1.CreateOptions{
			FieldManager: lifecycle.FieldManager, DryRun: []string{metav1.DryRunAll},
		})
	}
	return stages, refused, nil
}
