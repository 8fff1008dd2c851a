package precondition

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/objectmeta"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/references"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/payload"
)

// Limits of the check of data.
const (
	maxDataClaims  = 500 // claims of a Namespace that are read
	maxDataObjects = 20  // custom resources of a definition that are read
)

// A DataLoss is a manifest whose apply deletes objects with data.
type DataLoss struct {
	Manifest *payload.Manifest
	Lost     []kinds.ID
}

// readData finds the data on the cluster that tombstones, and StatefulSets with fewer pods, take with them. Objects
// that can't be read are left out.
func (f *Facts) readData(ctx context.Context, c *cluster.Cluster, places []place) {
	lost := make([][]kinds.ID, len(places))
	concurrently(len(places), func(i int) {
		m, id := places[i].manifest, places[i].id()
		isScaled := id.GroupKind() == kinds.StatefulSet && !m.IsCreateOnly() &&
			text(m.Object(), "spec", "persistentVolumeClaimRetentionPolicy", "whenScaled") == "Delete"
		mayDelete := m.IsTombstone() &&
			(kinds.DataLostOnDelete(id.GroupKind()) != "" || id.GroupKind() == kinds.StatefulSet)
		if !places[i].isServed || !isScaled && !mayDelete {
			return
		}
		live, err := c.Get(ctx, id)
		if err != nil || live.GetDeletionTimestamp() != nil {
			return
		}
		after := m.Object()
		if m.IsTombstone() {
			after = nil
		}
		lost[i], _ = f.dataIn(ctx, c, live).LostWith(live, after)
		if id.GroupKind() == kinds.CustomResourceDefinition {
			lost[i] = lost[i][1:] // it has no objects of its own
		}
	})
	for i, ids := range lost {
		if len(ids) > 0 {
			f.Data = append(f.Data, DataLoss{places[i].manifest, ids})
		}
	}
}

// dataIn returns the objects with data in an object: the bound claims of a Namespace, and the custom resources of a
// definition that are not of the release.
func (f *Facts) dataIn(ctx context.Context, c *cluster.Cluster, live *unstructured.Unstructured) references.Data {
	data := references.Data{}
	switch live.GroupVersionKind().GroupKind() {
	case kinds.Namespace:
		claims, err := c.Client.CoreV1().PersistentVolumeClaims(live.GetName()).List(ctx,
			metav1.ListOptions{Limit: maxDataClaims})
		for i := 0; err == nil && i < len(claims.Items); i++ {
			if claims.Items[i].Status.Phase == corev1.ClaimBound {
				data.Add(kinds.NewID(kinds.PersistentVolumeClaim, live.GetName(), claims.Items[i].Name))
			}
		}
	case kinds.CustomResourceDefinition:
		_, resources := cluster.DefinedKind(live)
		for _, resource := range resources[:min(1, len(resources))] { // any version has all objects
			list, err := c.In(resource, "").List(ctx, metav1.ListOptions{
				Limit: maxDataObjects, LabelSelector: objectmeta.ReleaseLabel + "!=" + f.Record.Release,
			})
			for i := 0; err == nil && i < len(list.Items); i++ {
				data.Add(resource.IDOf(&list.Items[i]))
			}
		}
	}
	return data
}

// judgeData implements DeletedData: one finding for each manifest.
func judgeData(f *Facts) []Finding {
	var findings []Finding
	for _, loss := range f.Data {
		m, content := loss.Manifest, "with it "+name(loss.Lost)
		if loss.Lost[0] == m.ID() {
			content = kinds.DataLostOnDelete(m.ID().GroupKind())
		}
		message := m.Path + ": the release deletes " + m.ID().String() + ", and " + content
		if !m.IsTombstone() {
			message = m.Path + ": " + m.ID().String() + " gets fewer pods, and Kubernetes deletes " + name(loss.Lost)
		}
		finding := blocks("keeping it, or giving the reason in the annotation "+references.DataLossAnnotation, "%s",
			message)
		if reason := m.Object().GetAnnotations()[references.DataLossAnnotation]; reason != "" {
			finding = warns("dropping it from the release, if the data are needed",
				"%s, as the release allows: %s", message, printable.Line(reason))
		}
		findings = append(findings, finding.withFile(m))
	}
	return findings
}
