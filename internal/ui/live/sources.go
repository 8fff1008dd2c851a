package live

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/cluster/objectmeta"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/internal/session/why"
	"github.com/runlevel/runlevel/pkg/payload"
)

// A source is objects of a kind that a topic consists of.
type source struct {
	kind           schema.GroupKind
	namespace      string // "" for all
	labels, fields string // selectors
}

// machineKinds are the kinds of the topic of machines. Their conditions have the progress of a drain.
var machineKinds = []schema.GroupKind{
	{Group: "machine.openshift.io", Kind: "Machine"},
	{Group: "machine.openshift.io", Kind: "MachineSet"},
	{Group: "cluster.x-k8s.io", Kind: "Machine"},
	{Group: "cluster.x-k8s.io", Kind: "MachineSet"},
	{Group: "cluster.x-k8s.io", Kind: "MachineDeployment"},
}

// sources returns the sources of the topic, as far as the last read shows them.
func (s *subject) sources() []source {
	switch s.topic.Kind {
	case OfRelease:
		release, _ := s.result.(*Release)
		return releaseSources(s.topic, release)
	case OfReleases:
		releases, _ := s.result.(*releaseList)
		return listSources(s.hub.Namespace, releases)
	default:
		var all []source
		for _, kind := range machineKinds {
			all = append(all, source{kind: kind})
		}
		return all
	}
}

// recordSources returns the sources of all releases, or one: records, locks and the state of operators.
func recordSources(namespace, labels string, hasVersion bool) []source {
	all := []source{
		{kind: kinds.ConfigMap, namespace: namespace, labels: labels},
		{kind: kinds.Lease, namespace: namespace, labels: labels},
		{kind: kinds.ClusterOperator},
	}
	if hasVersion {
		all = append(all, source{kind: kinds.ClusterVersion})
	}
	return all
}

func listSources(namespace string, releases *releaseList) []source {
	all := recordSources(namespace, lock.Label, true)
	if releases == nil {
		return all
	}
	for _, known := range releases.records {
		for _, kind := range known.GroupKinds() {
			all = append(all, source{kind: kind, labels: objectmeta.ReleaseLabel})
		}
	}
	return all
}

// maxDeletes limits the pending deletes whose objects are watched one by one.
const maxDeletes = 20

func releaseSources(topic Topic, release *Release) []source {
	all := recordSources(topic.Namespace, lock.Label+"="+topic.Name, topic.Name == payload.DefaultName)
	if release == nil || release.Record == nil {
		return all
	}
	for _, kind := range release.Record.GroupKinds() {
		all = append(all, source{kind: kind, labels: objectmeta.ReleaseLabel + "=" + topic.Name})
	}
	for _, item := range release.Status.Deletes[:min(maxDeletes, len(release.Status.Deletes))] {
		all = append(all, sourceOf(item.Object))
	}
	for _, answer := range release.Status.Objects {
		group := answer.Object.Group
		if answer.State == why.NotReady && (group == kinds.Deployment.Group || group == kinds.Job.Group) {
			all = append(all, source{kind: kinds.Pod, namespace: answer.Object.Namespace})
		}
	}
	if unkept := release.Status.NotKept; unkept != nil && unkept.Operator != nil {
		all = append(all, sourceOf(*unkept.Operator), source{kind: kinds.Pod, namespace: unkept.Operator.Namespace})
	}
	return all
}

// sourceOf returns the source of one object.
func sourceOf(id kinds.ID) source {
	name := fields.OneTermEqualSelector(metav1.ObjectNameField, id.Name)
	return source{kind: id.GroupKind(), namespace: id.Namespace, fields: name.String()}
}
