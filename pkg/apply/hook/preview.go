package hook

import (
	"context"
	"errors"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/objects/deploymenthook"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/apply/object"
)

// A preview contains the hooks of a Deployment that would run.
type preview struct {
	once    sync.Once
	stages  []deploymenthook.Stage
	refused map[deploymenthook.Stage]error // errors of dry runs of their pods
	err     error
}

// Preview returns the result that the hook would have. All hooks of a Deployment are previewed together.
func (s *stageStep) Preview(*object.Previewer) (object.Change, error) {
	p := &s.previewed
	p.once.Do(func() { p.err = p.find(s.RequestCtx, s.runner) })
	err := p.err
	if err == nil {
		err = p.refused[s.stage]
	}
	switch {
	case errors.As(err, new(*refusal)): // the step of the Deployment reports it
		return object.Change{Action: object.NotChecked, Message: WhyRefused}, nil
	case err != nil && s.Applier.IsRetryable(s.manifest, err): // the release may create objects that the pod needs
		return object.Change{Action: object.NotChecked, Message: printable.Line(err.Error())}, nil
	case err != nil:
		return object.Change{}, err
	case !slices.Contains(p.stages, s.stage):
		return object.Change{Action: object.NotNeeded}, nil
	}
	return object.Change{Action: object.Ran}, nil
}

// find finds the hooks that an apply would run, and tries their pods by dry runs.
func (p *preview) find(ctx context.Context, r *runner) error {
	facts, err := r.look(ctx, "")
	if err != nil {
		return err
	}
	if facts.Live != nil && !r.rollout.IsCreateOnly {
		isChanged, err := r.Applier.Workload(r.manifest).ChangesTemplate()
		if err != nil {
			return &refusal{err}
		}
		facts.IsChanged = &isChanged
	}
	p.stages, p.refused = r.rollout.Due(facts), map[deploymenthook.Stage]error{}
	for _, stage := range p.stages {
		p.refused[stage] = tryPod(ctx, r, r.rollout.NextPod(stage, facts))
	}
	return nil
}

// tryPod returns the refusal of the cluster to create the pod of a hook; nil if there is none. If the namespace does
// not exist yet, tryPod returns that error, unless the pod would be refused in every namespace.
func tryPod(ctx context.Context, r *runner, pod *corev1.Pod) error {
	try := func() error {
		_, err := r.Cluster.Client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{
			FieldManager: deploymenthook.FieldManager, DryRun: []string{metav1.DryRunAll},
		})
		return err
	}
	refused := try()
	if !object.IsNoNamespace(refused) {
		return refused
	}
	pod.Namespace = object.StandIn
	if elsewhere := try(); elsewhere == nil || object.IsAboutObject(elsewhere) {
		return elsewhere
	}
	return refused
}
