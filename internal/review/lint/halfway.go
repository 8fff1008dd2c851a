package lint

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/runlevel/runlevel/internal/objects/deploymenthook"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/pkg/payload"
)

// halfwayRules are about updates that stop half-way, and fields that keep their values.
func halfwayRules() []Rule {
	return []Rule{
		{"held-rollout", Warning, nothing, checkHeldRollout},
		{"volume-in-use", Warning, nothing, checkVolumeInUse},
		{"no-endpoints-yet", Warning, needsPrevious, checkNoEndpointsYet},
		{"image-version", Warning, needsPrevious, checkImageVersion},
		{"default-restored", Warning, needsPrevious, checkDefaultRestored},
		{"change-not-made", Warning, needsPrevious, checkChangeNotMade},
		{"recreated", Warning, needsPrevious, checkRecreated},
	}
}

// previousOf returns the manifest that an object has in the previous payload; nil if it is new, or there is no previous
// payload.
func (s *subject) previousOf(m *manifest) *manifest {
	for _, old := range s.withPrevious(m)[1:] {
		if !old.isTombstone && s.shareCluster(old, m) {
			return old
		}
	}
	return nil
}

// checkHeldRollout looks for workloads whose pods stay as they are, although their template changes.
func checkHeldRollout(s *subject, r *reporter) {
	for _, sets := range s.pods() {
		for _, pods := range sets {
			old := s.previousOf(pods.by)
			isChanged := old == nil || !reflect.DeepEqual(old.get("spec", "template"), pods.by.get("spec", "template"))
			for gates, effect := range podGates {
				path := slices.Concat(pods.path, []string{gates})
				if old != nil && pods.spec[gates] != nil && old.get(path...) == nil {
					r.field(pods.by, path, "%s is new, and %s: drop it if no controller of the cluster does that",
						gates, effect)
				}
			}
			switch m := pods.by; m.groupKind() {
			case kinds.Deployment:
				if m.get("spec", "paused") == true && (isChanged || old.get("spec", "paused") != true) {
					r.field(m, []string{"spec", "paused"}, "a paused Deployment creates no pods of a new "+
						"template, and the update waits for them: drop paused")
				}
				checkSlowRollout(old, pods, r)
			case kinds.StatefulSet, kinds.DaemonSet:
				if old != nil {
					s.checkUpdateStrategy(old, pods, isChanged, r)
					checkSlowRollout(old, pods, r)
				}
			}
		}
	}
}

// podGates are the fields by which pods wait for a controller.
var podGates = map[string]string{
	"schedulingGates": "pods are not scheduled until a controller removes the gates",
	"readinessGates":  "pods are not ready until a controller sets the conditions",
}

// checkUpdateStrategy looks for strategies by which a StatefulSet or a DaemonSet keeps pods of an earlier template.
func (s *subject) checkUpdateStrategy(old *manifest, pods podSet, isChanged bool, r *reporter) {
	m, strategy := pods.by, []string{"spec", "updateStrategy", "type"}
	if isChanged && m.text(strategy...) == "OnDelete" && old.text(strategy...) != "OnDelete" {
		r.field(m, strategy, "OnDelete keeps all pods of the earlier version until others delete them, and an update "+
			"does not wait for that: keep RollingUpdate")
	}
	field := []string{"spec", "updateStrategy", "rollingUpdate", "partition"}
	partition, _ := m.get(field...).(int64)
	before, _ := old.get(field...).(int64)
	replicas, isFixed := s.replicasOf([]podSet{pods})
	switch {
	case partition == 0 || !isFixed || !isChanged: // no pod has to be replaced
	case int(partition) >= replicas:
		r.field(m, field, "partition %d keeps all %d pods at the earlier version: set the number of the first pod to "+
			"update, or 0", partition, replicas)
	case partition == before:
		r.field(m, field, "partition %d is as in %s:%d, so the pods with lower numbers miss this update as well as "+
			"the earlier one: set 0 to end the canary, or name a version that all pods have", partition, old.where(),
			old.Line)
	}
}

// maxMinReadySeconds is the time for which most rollouts observe a new pod, at most.
const maxMinReadySeconds = 600

// checkSlowRollout looks for pods that are available too late: after the deadline of their Deployment, or after a long
// time for each pod.
func checkSlowRollout(old *manifest, pods podSet, r *reporter) {
	seconds, _ := pods.by.get("spec", "minReadySeconds").(int64)
	if old != nil && seconds >= maxMinReadySeconds {
		if before, _ := old.get("spec", "minReadySeconds").(int64); before < maxMinReadySeconds {
			r.field(pods.by, []string{"spec", "minReadySeconds"}, "minReadySeconds %d has an update wait that long "+
				"for each pod before it replaces the next one: lower it", seconds)
		}
	}
	deadline, isSet := pods.by.get("spec", "progressDeadlineSeconds").(int64)
	if !isSet {
		deadline = 600 // the API server's default
	}
	if pods.by.groupKind() != kinds.Deployment || pods.typed() == nil {
		return
	}
	for _, container := range pods.typed().Containers {
		for _, probe := range []*corev1.Probe{container.StartupProbe, container.ReadinessProbe} {
			if probe != nil && int64(probe.InitialDelaySeconds) >= deadline {
				r.field(pods.by, []string{"spec", "progressDeadlineSeconds"}, "progressDeadlineSeconds %d ends before "+
					"the container %s can be ready, which takes initialDelaySeconds %d: each rollout fails",
					deadline, container.Name, probe.InitialDelaySeconds)
				return
			}
		}
	}
	if deadline < minRolloutDeadline {
		r.field(pods.by, []string{"spec", "progressDeadlineSeconds"}, "progressDeadlineSeconds %d is over before a "+
			"node has pulled an image: rollouts fail, allow some minutes", deadline)
	}
}

// minRolloutDeadline is the time, in seconds, that a node may need to pull an image and start a program.
const minRolloutDeadline = 30

// checkVolumeInUse looks for Deployments whose new pods wait for a volume that an earlier pod has.
func checkVolumeInUse(s *subject, r *reporter) {
	for _, m := range s.byKind[kinds.Deployment] {
		if m.isTombstone {
			continue
		}
		old := s.previousOf(m)
		for _, reference := range m.references {
			if reference.To.GroupKind() != kinds.PersistentVolumeClaim {
				continue
			}
			for _, claim := range s.byID[reference.To] {
				if !claim.isTombstone && s.shareCluster(m, claim) {
					checkSharedClaim(old, m, claim, reference.Path, r)
				}
			}
		}
	}
}

// checkSharedClaim looks for pods of a Deployment that need a claim at the same time.
func checkSharedClaim(old, m, claim *manifest, path []string, r *reporter) {
	modes, _ := claim.get("spec", "accessModes").([]any)
	replicas, surge := m.rollout()
	hasMode := func(mode string) bool { return len(modes) == 1 && modes[0] == mode }
	place := fmt.Sprintf("%s:%d", claim.Path, claim.Line)
	switch {
	case hasMode("ReadWriteOncePod") && replicas > 1:
		r.field(m, path, "%s (%s) is ReadWriteOncePod, so one of %d pods has it and the others stay pending: use a "+
			"StatefulSet, or ReadWriteMany", claim.id, place, replicas)
	case hasMode("ReadWriteOncePod") && surge > 0 && replicas > 0:
		r.field(m, path, "%s (%s) is ReadWriteOncePod, so in an update the new pod stays pending while the earlier "+
			"one runs: set strategy.type Recreate", claim.id, place)
	case !hasMode("ReadWriteOnce") || old == nil:
	case replicas > 1 && (old.number(1, "spec", "replicas") < 2 || !old.mounts(claim)):
		r.field(m, path, "%s (%s) is ReadWriteOnce, so of %d pods those on other nodes than the first one do not "+
			"start: use a StatefulSet, or ReadWriteMany", claim.id, place, replicas)
	case surge > 0 && old.mounts(claim) && old.text("spec", "strategy", "type") == "Recreate":
		r.field(m, path, "%s (%s) is ReadWriteOnce, and the strategy is no longer Recreate: a new pod on another node "+
			"waits for the volume, and the earlier pod for the new one: keep Recreate", claim.id, place)
	}
}

// mounts reports whether a Deployment has a volume of a claim.
func (m *manifest) mounts(claim *manifest) bool {
	pods, hasPods := newPodSet(m)
	return hasPods && pods.typed() != nil && slices.ContainsFunc(pods.typed().Volumes, func(v corev1.Volume) bool {
		return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim.id.Name
	})
}

// rollout returns the number of pods of a Deployment, and how many more an update creates before it ends others.
func (m *manifest) rollout() (replicas, surge int) {
	replicas = int(m.number(1, "spec", "replicas"))
	if m.text("spec", "strategy", "type") == "Recreate" {
		return replicas, 0
	}
	bound := intstr.FromString("25%")
	switch value := m.get("spec", "strategy", "rollingUpdate", "maxSurge").(type) {
	case int64:
		bound = intstr.FromInt32(int32(value))
	case string:
		bound = intstr.FromString(value)
	}
	surge, _ = intstr.GetScaledValueFromIntOrPercent(&bound, replicas, true)
	return replicas, surge
}

// checkNoEndpointsYet looks for Services without pods until an update has created those that they select: the selector
// changes before the pods get its labels, or the workload with the pods is deleted before its successor has any.
func checkNoEndpointsYet(s *subject, r *reporter) {
	for _, m := range s.byKind[kinds.Service] {
		old := s.previousOf(m)
		pods, selector, areAll := s.selected(m)
		if old == nil || old.podSelector() == nil || !areAll || len(pods) == 0 {
			continue
		}
		earlier, before := old.podSelector(), s.previous.pods()[m.id.Namespace]
		isServing, isKept, cause := false, false, m
		for _, set := range before {
			isServing = isServing || earlier.Matches(set.labels)
			if deleted := tombstonesOf(s.byID[set.by.id]); selector.Matches(set.labels) && len(deleted) > 0 {
				cause = deleted[0]
			} else if selector.Matches(set.labels) {
				isKept = true
			}
		}
		if !isServing || isKept || slices.ContainsFunc(pods, func(next podSet) bool {
			return s.isAwaitedBefore(next.by, cause)
		}) {
			continue
		}
		next := pods[0].by
		if cause != m {
			r.at(cause, "it is deleted before %s (%s:%d) is ready, and until then Service %s (%s:%d) has no "+
				"endpoints: delete it in a later level, or in the next release", next.id, next.Path, next.Line,
				m.id.Name, m.Path, m.Line)
		} else if earlier.String() != selector.String() {
			r.field(m, []string{"spec", "selector"}, "the selector %s is changed before %s (%s:%d) has pods with "+
				"these labels, and until one is ready the Service has no endpoints: add the labels in this release "+
				"and select them in the next one, or in a later level", selector, next.id, next.Path, next.Line)
		}
	}
}

// restored are fields to which the API server gives a default when a manifest no longer has them.
var restored = map[schema.GroupKind][]struct{ path, value, effect string }{
	kinds.CronJob: {
		{"spec.concurrencyPolicy", "Allow", "Jobs run beside earlier ones that take longer"},
		{"spec.timeZone", "that of the controller", "Jobs start at other hours"},
	},
	kinds.Service: {
		{"spec.sessionAffinity", "None", "requests of a client reach other pods than the one that has its session"},
		{"spec.externalTrafficPolicy", "Cluster", "pods no longer see the addresses of clients"},
	},
	kinds.HorizontalPodAutoscaler: {{"spec.minReplicas", "1", "one pod is left when there is little load"}},
}

const nginx = "nginx.ingress.kubernetes.io/"

// restoredByNginx are annotations without which the Ingress controller of nginx has a default.
var restoredByNginx = map[string]string{
	"proxy-body-size":    "larger requests than 1 MB are refused",
	"proxy-read-timeout": "answers that take longer than 60 seconds are cut off",
	"proxy-send-timeout": "requests that take longer than 60 seconds are cut off",
	"backend-protocol":   "the pods get plain HTTP",
	"rewrite-target":     "the pods get the paths of the clients",
}

func checkDefaultRestored(s *subject, r *reporter) {
	s.pairs(func(old, m *manifest) {
		if old.annotations[deploymenthook.Annotation] != "" && m.annotations[deploymenthook.Annotation] == "" {
			r.at(m, "the annotation %s is dropped, which %s has: rollouts no longer run its hooks: keep it",
				deploymenthook.Annotation, old.place())
		}
		for _, key := range sortedKeys(restoredByNginx) {
			key, effect := nginx+key, restoredByNginx[key]
			if m.groupKind() == kinds.Ingress && old.annotations[key] != "" && m.annotations[key] == "" &&
				reflect.DeepEqual(m.get("spec"), old.get("spec")) {
				r.field(m, []string{"metadata", "annotations"}, "the annotation %s is dropped, which is %s in %s:%d: "+
					"%s: keep it", key, old.annotations[key], old.where(), old.Line, effect)
			}
		}
		for _, field := range restored[m.groupKind()] {
			path := strings.Split(field.path, ".")
			before := old.get(path...)
			if before == nil || m.get(path...) != nil || fmt.Sprint(before) == field.value ||
				m.kind.Kind == "Service" && m.text("spec", "type") != old.text("spec", "type") {
				continue
			}
			r.field(m, []string{"spec"}, "%s is dropped, which is %v in %s, and becomes %s, so that %s: keep it, or "+
				"write the default", field.path, before, old.place(), field.value, field.effect)
		}
	})
}

// checkChangeNotMade looks for changes of manifests that do not change their objects.
func checkChangeNotMade(s *subject, r *reporter) {
	s.pairs(func(old, m *manifest) {
		for _, field := range sortedKeys(m.Object().Object) {
			if m.IsCreateOnly() && field != "metadata" && !reflect.DeepEqual(m.get(field), old.get(field)) {
				r.field(m, []string{field}, "%s differs from %s:%d, and clusters that have the object keep it "+
					"unchanged, because it is create-only: give it another name, or drop the annotation %s", field,
					old.where(), old.Line, payload.CreateOnlyAnnotation)
				return
			}
		}
		had, hasPods := newPodSet(old)
		if !hasPods || had.spec["serviceAccountName"] == nil ||
			m.get(append(had.path, "serviceAccountName")...) != nil {
			return
		}
		account := old.account()
		for _, tombstone := range tombstonesOf(s.byID[account]) {
			if s.shareCluster(m, tombstone) && m.get(append(had.path, "serviceAccount")...) == nil {
				r.field(m, had.path, "serviceAccountName is dropped, and the API server keeps %s in the deprecated "+
					"field serviceAccount, so no pod can be created when %s:%d deletes that account: write "+
					"serviceAccountName: default", account.Name, tombstone.Path, tombstone.Line)
			}
		}
	})
}

// lostWith are the things that an object of a kind loses if it is deleted and created again.
var lostWith = map[schema.GroupKind]string{kinds.Deployment: "all its pods", kinds.Service: "its address"}

// checkRecreated looks for Deployments and Services that an update deletes and creates again because of the annotation
// of an earlier release. That of a StatefulSet may be the only way to change its claims.
func checkRecreated(s *subject, r *reporter) {
	s.pairs(func(old, m *manifest) {
		lost, isServing := lostWith[m.groupKind()]
		if !isServing || !m.IsRecreated() || !old.IsRecreated() {
			return
		}
		if changed := refused(old, m); len(changed) > 0 {
			r.field(m, changed[0].Path.Keys(), "%s differs from %s, and by the annotation %s, which is not new, the "+
				"update deletes it with %s before it creates it again: take the change back, or give it another name",
				changed[0].Path, old.place(), recreate, lost)
		}
	})
}
