package lint

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/pkg/graph"
)

// lifeRules are about pods that are not scheduled, that do not start, or that are killed.
func lifeRules() []Rule {
	return []Rule{
		{"switched-off", Warning, needsPrevious, checkSwitchedOff},
		{"protection-dropped", Warning, needsPrevious, checkProtectionDropped},
		{"killed-early", Warning, nothing, checkKilledEarly},
		{"never-starts", Warning, nothing, checkNeverStarts},
		{"never-runs", Warning, nothing, checkNeverRuns},
		{"unschedulable", Warning, nothing, checkUnschedulable},
		{"wrong-quantity", Warning, nothing, checkWrongQuantity},
		{"over-limit", Warning, nothing, checkOverLimit},
		{"contested", Warning, nothing, checkContested},
	}
}

// checkSwitchedOff looks for updates that leave a workload without pods, or with fewer than it needs.
func checkSwitchedOff(s *subject, r *reporter) {
	s.pairs(func(old, m *manifest) {
		switch m.kind.Kind {
		case "Deployment", "StatefulSet", "ReplicaSet":
			before, now := old.number(1, "spec", "replicas"), m.number(1, "spec", "replicas")
			if before > 0 && now == 0 && s.autoscalerOf(m.id) == nil && !s.isReplaced(old, m) {
				r.field(m, []string{"spec", "replicas"},
					"replicas 0 deletes all pods, and %s has %d: keep some, or delete the %s if it is not needed",
					old.place(), before, m.kind.Kind)
			}
		case "CronJob":
			if m.get("spec", "suspend") == true && old.get("spec", "suspend") != true {
				r.field(m, []string{"spec", "suspend"}, "suspend stops all Jobs of the schedule, which %s runs: "+
					"remove it, or delete the CronJob if it is not needed", old.place())
			}
		case "HorizontalPodAutoscaler":
			most, reason := m.number(1, "spec", "maxReplicas"), fmt.Sprintf("minReplicas of %s", old.place())
			least := old.number(1, "spec", "minReplicas")
			target, _ := kinds.ScaleTarget(m.Object())
			if scaled := s.present(target, m); scaled != nil && most < old.number(1, "spec", "maxReplicas") {
				if replicas := scaled.number(1, "spec", "replicas"); replicas > least {
					least, reason = replicas, fmt.Sprintf("replicas of %s", scaled.named())
				}
			}
			if most < least {
				r.field(m, []string{"spec", "maxReplicas"}, "maxReplicas %d removes pods that are always needed: "+
					"%s is %d", most, reason, least)
			}
		}
	})
}

// isReplaced reports whether Services selected the pods of a workload, and now select those of others, as when one
// color replaces another.
func (s *subject) isReplaced(old, m *manifest) bool {
	return s.previous.isServing(old) && !s.isServing(m)
}

// isServing reports whether a Service selects the pods of a workload.
func (ix *index) isServing(m *manifest) bool {
	return slices.ContainsFunc(ix.byKind[kinds.Service], func(service *manifest) bool {
		return service.id.Namespace == m.id.Namespace && graph.Selects(service.Object(), m.Object())
	})
}

// number returns a whole number of an object, or the default of the API server.
func (m *manifest) number(byDefault int64, path ...string) int64 {
	if number, isSet := m.get(path...).(int64); isSet {
		return number
	}
	return byDefault
}

// autoscalerOf returns the object of the payload that scales another one; nil if none does.
func (s *subject) autoscalerOf(id kinds.ID) *manifest {
	for _, m := range s.normal {
		if target, scales := kinds.ScaleTarget(m.Object()); scales && target == id {
			return m
		}
	}
	return nil
}

// checkProtectionDropped looks for updates that remove a protection of pods: from traffic before they are ready, and
// from being killed, preempted, or replaced all at once.
func checkProtectionDropped(s *subject, r *reporter) {
	s.podPairs(func(old, now podSet) {
		before, after := old.typed(), now.typed()
		dropped := func(field, effect string) {
			now.field(r, field, "it no longer has the %s of %s: %s", field[strings.LastIndex(field, "|")+1:],
				old.by.place(), effect)
		}
		isBound := now.by.groupKind() == kinds.DaemonSet || len(after.NodeSelector) > 0 // others have other nodes
		if isBound && slices.ContainsFunc(before.Tolerations, func(t corev1.Toleration) bool {
			return t.Key != "node-role.kubernetes.io/master" && // Kubernetes no longer sets this taint
				!slices.ContainsFunc(after.Tolerations,
					func(u corev1.Toleration) bool { return u.Key == "" || u.Key == t.Key })
		}) {
			dropped("tolerations", "nodes with that taint no longer run the pods")
		}
		if s.priorityOf(after.PriorityClassName, math.MaxInt64) < s.priorityOf(before.PriorityClassName, 1) {
			dropped("priorityClassName", "its priority is lower now, and others preempt the pods on a full node")
		}
		if path := []string{"securityContext", "fsGroup"}; now.hasClaims() && fieldAt(old.spec, path) != nil &&
			fieldAt(now.spec, path) == nil {
			dropped("securityContext|fsGroup", "the processes may not write to new volumes")
		}
		if had, has := graceOf(before), graceOf(after); now.hasClaims() && has < had/2 {
			now.field(r, "terminationGracePeriodSeconds", "%s allows %d seconds to stop, and now it is killed after "+
				"%d, which may damage its data: keep terminationGracePeriodSeconds", old.by.place(), had, has)
		}
		if now.restarts() {
			containerPairs(old, now, func(before, c podContainer) {
				checkContainerProtection(old.by, before, c, now, r)
			})
		}
	})
	s.pairs(func(old, m *manifest) {
		s.checkReplacedAtOnce(old, m, r)
		policy := []string{"spec", "concurrencyPolicy"}
		had := cmp.Or(old.text(policy...), "Allow")
		if m.groupKind() == kinds.CronJob && had != "Allow" && m.text(policy...) == "Allow" { // see default-restored
			r.field(m, policy, "concurrencyPolicy Allow starts a Job while the one before still runs, and with the %s "+
				"of %s only one runs at a time: keep it", had, old.place())
		}
	})
	each(s, kinds.PriorityClass, func(m *manifest, class *schedulingv1.PriorityClass) {
		isDefault := func(old *manifest) bool { return old.get("globalDefault") == true }
		if class.GlobalDefault && !slices.ContainsFunc(s.previous.byKind[kinds.PriorityClass], isDefault) {
			r.field(m, []string{"globalDefault"}, "globalDefault gives all new pods of the cluster the priority %d, "+
				"so they preempt older pods, and pods of this class no longer precede them: name the class in "+
				"priorityClassName where it is needed", class.Value)
		}
	})
}

// priorityOf returns the priority that a class gives to pods; for a class that the payload does not have, it returns
// another.
func (s *subject) priorityOf(class string, unknown int64) int64 {
	if class == "" {
		return 0
	}
	if found := s.byID[kinds.NewID(kinds.PriorityClass, "", class)]; len(found) > 0 {
		return found[0].number(0, "value")
	}
	return unknown
}

// maxSlowStart is the time, in seconds, in which most programs start.
const maxSlowStart = 60

// checkContainerProtection looks for probes and memory of a container that the update removes or lowers.
func checkContainerProtection(old *manifest, before, now podContainer, pods podSet, r *reporter) {
	place := old.place()
	if before.ReadinessProbe != nil && now.ReadinessProbe == nil && !now.isInit &&
		(now.StartupProbe == nil || before.StartupProbe != nil) { // else perhaps it is the startupProbe now
		pods.field(r, now.field, "the container %s no longer has the readinessProbe of %s: it gets requests "+
			"while it can't answer them", now.Name, place)
	}
	if now.LivenessProbe != nil && before.LivenessProbe != nil {
		seconds := patience(cmp.Or(now.StartupProbe, now.LivenessProbe))
		most := patience(cmp.Or(before.StartupProbe, before.LivenessProbe))
		if 3*seconds <= most && seconds <= maxSlowStart && seconds >= minPatience { // killed-early reports less
			pods.field(r, now.field+"|livenessProbe", "the livenessProbe kills a container that has not started after "+
				"%d seconds, and %s allows %d: keep its startupProbe or initialDelaySeconds", seconds, place, most)
		}
	}
	if before.Lifecycle != nil && before.Lifecycle.PreStop != nil &&
		(now.Lifecycle == nil || now.Lifecycle.PreStop == nil) {
		pods.field(r, now.field, "the container %s no longer has the preStop handler of %s: it stops while it still "+
			"gets requests", now.Name, place)
	}
	limit, request := now.Resources.Limits.Memory(), before.Resources.Requests.Memory()
	if !limit.IsZero() && 2*limit.Value() <= request.Value() {
		pods.field(r, now.field+"|resources|limits|memory", "limits.memory %s is at most half of the %s that %s "+
			"requests: a container that needs what it requested is killed", limit, request, place)
	}
}

// checkReplacedAtOnce looks for strategies that let an update stop all pods that clients need at one time.
func (s *subject) checkReplacedAtOnce(old, m *manifest, r *reporter) {
	replicas := m.number(1, "spec", "replicas")
	if m.text("spec", "strategy", "type") == "Recreate" && old.text("spec", "strategy", "type") != "Recreate" &&
		m.kind.Kind == "Deployment" && max(replicas, s.leastPods(m)) > 1 && s.isServing(m) {
		r.field(m, []string{"spec", "strategy", "type"}, "Recreate stops all pods before an update starts new ones, "+
			"and %s replaces them one after the other: keep RollingUpdate", old.place())
	}
	pods, _ := newPodSet(m)
	isReached := m.kind.Kind != "DaemonSet" || // of pods on all nodes, clients need those that have ports of nodes
		slices.ContainsFunc(pods.ports(), func(port corev1.ContainerPort) bool {
			return port.HostPort > 0 && !strings.Contains(port.Name, "metrics")
		})
	for _, strategy := range []string{"strategy", "updateStrategy"} {
		path := []string{"spec", strategy, "rollingUpdate", "maxUnavailable"}
		isLast := old.number(1, "spec", "replicas") > 1 &&
			m.get("spec", strategy, "rollingUpdate", "maxSurge") == int64(0)
		isAll := m.get(path...) == "100%" || (replicas > 1 || isLast) && m.number(0, path...) >= replicas
		if isAll && isReached && old.get(path...) != m.get(path...) && kinds.IsWorkload(m.groupKind()) {
			r.field(m, path, "maxUnavailable %v lets an update stop all pods at one time: allow 1, or 25%%",
				m.get(path...))
		}
	}
}
