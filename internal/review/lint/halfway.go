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
	"github.com/runlevel/runlevel/internal/text/printable"
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
	s.eachPods(func(pods podSet, _ *corev1.PodSpec) {
		m, old := pods.by, s.previousOf(pods.by)
		isChanged := old == nil || !reflect.DeepEqual(old.get("spec", "template"), m.get("spec", "template"))
		for _, gates := range []string{"schedulingGates", "readinessGates"} {
			path := slices.Concat(pods.path, []string{gates})
			if old != nil && m.get(path...) != nil && old.get(path...) == nil {
				r.field(m, path, "%s is new, and the pods wait until a controller passes the gates: drop it if no "+
					"controller of the cluster does that", gates)
			}
		}
		switch m.groupKind() {
		case kinds.Deployment:
			if m.get("spec", "paused") == true && (isChanged || old.get("spec", "paused") != true) {
				r.field(m, []string{"spec", "paused"}, "a paused Deployment creates no pods of a new template, and "+
					"the update waits for them: drop paused")
			}
			checkDeadline(old, pods, r)
			checkSlowRollout(old, m, r)
		case kinds.StatefulSet, kinds.DaemonSet:
			if old != nil && isChanged {
				s.checkUpdateStrategy(old, m, r)
			}
			checkSlowRollout(old, m, r)
		}
	})
}

// checkUpdateStrategy looks for strategies by which a StatefulSet or a DaemonSet keeps pods of an earlier template.
func (s *subject) checkUpdateStrategy(old, m *manifest, r *reporter) {
	strategy := []string{"spec", "updateStrategy", "type"}
	if m.text(strategy...) == "OnDelete" && old.text(strategy...) != "OnDelete" {
		r.field(m, strategy, "OnDelete keeps all pods of the earlier version until others delete them, and an update "+
			"does not wait for that: keep RollingUpdate")
	}
	field := []string{"spec", "updateStrategy", "rollingUpdate", "partition"}
	switch partition, replicas := m.number(0, field...), m.number(1, "spec", "replicas"); {
	case partition == 0 || s.autoscalerOf(m.id) != nil:
	case partition >= replicas:
		r.field(m, field, "partition %d keeps all %d pods at the earlier version: set the number of the first pod to "+
			"update, or 0", partition, replicas)
	case partition == old.number(0, field...):
		r.field(m, field, "partition %d is as in %s, so the pods with lower numbers miss this update as well as the "+
			"earlier one: set 0 to end the canary, or name a version that all pods have", partition, old.place())
	}
}

// maxMinReadySeconds is the time for which most rollouts observe a new pod, at most.
const maxMinReadySeconds = 600

// checkSlowRollout looks for updates that wait for a long time for each pod.
func checkSlowRollout(old, m *manifest, r *reporter) {
	field := []string{"spec", "minReadySeconds"}
	seconds := m.number(0, field...)
	if old != nil && seconds >= maxMinReadySeconds && old.number(0, field...) < maxMinReadySeconds {
		r.field(m, field, "minReadySeconds %d has an update wait that long for each pod before it replaces the next "+
			"one: lower it", seconds)
	}
}

// minRolloutDeadline is the time, in seconds, that a node may need to pull an image and start a program.
const minRolloutDeadline = 30

// checkDeadline looks for Deployments whose rollouts fail before a pod can be ready.
func checkDeadline(old *manifest, pods podSet, r *reporter) {
	const byDefault = 600 // of the API server
	field := []string{"spec", "progressDeadlineSeconds"}
	deadline := pods.by.number(byDefault, field...)
	if deadline < minRolloutDeadline {
		r.field(pods.by, field, "progressDeadlineSeconds %d is over before a node has pulled an image: rollouts fail, "+
			"allow some minutes", deadline)
		return
	}
	isLowered := old != nil && deadline < old.number(byDefault, field...)
	for _, c := range pods.typed().Containers {
		if isLowered && c.StartupProbe != nil && 2*deadline <= patience(c.StartupProbe) {
			r.field(pods.by, field, "progressDeadlineSeconds %d, which is lower than in %s, ends while the container "+
				"%s may still start: its startupProbe allows %d seconds, and a rollout that takes them fails: raise it",
				deadline, old.place(), c.Name, patience(c.StartupProbe))
			return
		}
		for _, probe := range []*corev1.Probe{c.StartupProbe, c.ReadinessProbe} {
			if probe != nil && int64(probe.InitialDelaySeconds) >= deadline {
				r.field(pods.by, field, "progressDeadlineSeconds %d ends before the container %s can be ready, which "+
					"takes initialDelaySeconds %d: each rollout fails", deadline, c.Name, probe.InitialDelaySeconds)
				return
			}
		}
	}
}

// checkVolumeInUse looks for Deployments whose new pods wait for a volume that an earlier pod has.
func checkVolumeInUse(s *subject, r *reporter) {
	for _, m := range s.byKind[kinds.Deployment] {
		for _, reference := range m.references {
			claim := s.present(reference.To, m)
			if claim != nil && claim.groupKind() == kinds.PersistentVolumeClaim {
				checkSharedClaim(s.previousOf(m), m, claim, reference.Path, r)
			}
		}
	}
}

// checkSharedClaim looks for pods of a Deployment that need a claim at the same time.
func checkSharedClaim(old, m, claim *manifest, path []string, r *reporter) {
	modes, _ := claim.get("spec", "accessModes").([]any)
	replicas, surge := m.rollout()
	if len(modes) != 1 || replicas+surge < 2 {
		return
	}
	switch {
	case modes[0] == "ReadWriteOncePod":
		r.field(m, path, "%s (%s) is ReadWriteOncePod, so only one of the %d pods that an update runs at a time "+
			"starts: set strategy.type Recreate for a single pod, or use ReadWriteMany for several", claim.id,
			claim.place(), replicas+surge)
	case modes[0] != "ReadWriteOnce" || old == nil:
	case replicas > 1 && (old.number(1, "spec", "replicas") < 2 || !old.mounts(claim)):
		r.field(m, path, "%s (%s) is ReadWriteOnce, so of %d pods those on other nodes than the first one do not "+
			"start: use a StatefulSet, or ReadWriteMany", claim.id, claim.place(), replicas)
	case surge > 0 && old.mounts(claim) && old.text("spec", "strategy", "type") == "Recreate":
		r.field(m, path, "%s (%s) is ReadWriteOnce, and the strategy is no longer Recreate: a new pod on another node "+
			"waits for the volume, and the earlier pod for the new one: keep Recreate", claim.id, claim.place())
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

// checkNoEndpointsYet looks for Services without pods for a part of an update: the selector changes before or after the
// pods get its labels, or the workload with the pods is deleted before its successor has any.
func checkNoEndpointsYet(s *subject, r *reporter) {
	var switched []*manifest
	for _, m := range s.byKind[kinds.Service] {
		old := s.previousOf(m)
		pods, selector, areAll := s.selected(m)
		if old == nil || !areAll || len(pods) == 0 || len(s.podsWith(old.podSelector(), old, s.previous)) == 0 {
			continue
		}
		next, deleted, isKept := pods[0].by, []*manifest(nil), false
		for _, set := range s.podsWith(selector, old, s.previous) {
			found := tombstonesOf(s.byID[set.by.id])
			deleted, isKept = append(deleted, found...), isKept || len(found) == 0
		}
		isReady := func(cause *manifest) bool {
			return slices.ContainsFunc(pods, func(p podSet) bool { return s.isAwaitedBefore(p.by, cause) })
		}
		switch {
		case isKept:
		case len(deleted) > 0 && !isReady(deleted[0]):
			r.at(deleted[0], "it is deleted before %s (%s) is ready, and until then Service %s (%s) has no endpoints: "+
				"delete it in a later level, or in the next release", next.id, next.place(), m.id.Name, m.place())
		case len(deleted) == 0 && (!isReady(m) || len(s.podsWith(old.podSelector(), m, s.index)) == 0):
			switched = append(switched, m)
		}
	}
	if len(switched) > 0 {
		s.reportSwitched(r, switched)
	}
}

// reportSwitched reports the Services that select other labels together with a change of their pods. A release that
// gives all its objects another label has one finding.
func (s *subject) reportSwitched(r *reporter, services []*manifest) {
	var others []string
	for _, m := range services[1:] {
		others = append(others, m.id.Name)
	}
	also := ""
	if len(others) > 0 {
		also = " (so do those of " + printable.Few(others, maxParts) + ")"
	}
	m := services[0]
	pods, selector, _ := s.selected(m)
	r.field(m, []string{"spec", "selector"}, "the selector becomes %s%s in the same update in which %s (%s) gets pods "+
		"with these labels, so that the Service has no endpoints until both have changed: add the labels in this "+
		"release, and select them in the next one", selector, also, pods[0].by.id, pods[0].by.place())
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
				r.field(m, []string{"metadata", "annotations"}, "the annotation %s is dropped, which is %s in %s: %s: "+
					"keep it", key, old.annotations[key], old.place(), effect)
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
				r.field(m, []string{field}, "%s differs from %s, and clusters that have the object keep it unchanged, "+
					"because it is create-only: give it another name, or drop the annotation %s", field, old.place(),
					payload.CreateOnlyAnnotation)
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
					"field serviceAccount, so no pod can be created when %s deletes that account: write "+
					"serviceAccountName: default", account.Name, tombstone.place())
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
