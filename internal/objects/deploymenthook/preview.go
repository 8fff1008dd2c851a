package deploymenthook

import corev1 "k8s.io/api/core/v1"

// Due returns the hooks that an apply would run, in their order. Facts must have IsChanged set.
func (r Rollout) Due(facts RolloutFacts) []Stage {
	facts.Pods = nil // those of other releases would be ended first
	for action, isDecided := r.begin(facts); isDecided; action, isDecided = r.begin(facts) {
		if action.State == nil {
			return nil
		}
		facts.State, facts.IsOverruled = *action.State, facts.IsOverruled || action.IsOverruling
	}
	var due []Stage
	for _, stage := range Stages {
		s := r.sequence(stage, facts)
		isNeeded := s.hook != nil && s.progress().Result == "" && (stage != Mid || !facts.State.IsInstall)
		if isNeeded {
			due = append(due, stage)
		}
	}
	return due
}

// NextPod returns the pod of a hook's next attempt.
func (r Rollout) NextPod(stage Stage, facts RolloutFacts) *corev1.Pod {
	s := r.sequence(stage, facts)
	return s.pod(s.progress().Attempt + 1)
}

// sequence returns the sequence of a stage.
func (r Rollout) sequence(stage Stage, facts RolloutFacts) sequence {
	return sequence{Rollout: r, stage: stage, hook: r.Hooks.Of(stage), seen: facts}
}
