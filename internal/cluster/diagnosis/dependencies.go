package diagnosis

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/objects/ready"
)

// How many objects that pods depend on are read, for one workload.
const (
	maxObjects = 3   // objects of a kind: each is a request
	maxListed  = 100 // nodes of the cluster, and StorageClasses
)

// dependencies reads the objects that may keep pods from being ready.
func (e *explainer) dependencies(ctx context.Context, pods []corev1.Pod) ready.Dependencies {
	needs := ready.NeedsOf(pods)
	var on ready.Dependencies
	for _, name := range first(needs.Nodes) {
		// A response from the server's cache is recent enough.
		node, err := e.Client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{ResourceVersion: "0"})
		switch {
		case err == nil:
			on.Nodes = append(on.Nodes, *node)
		case apierrors.IsNotFound(err):
			on.MissingNodes = append(on.MissingNodes, name)
		default:
			e.fail("get nodes", err)
		}
	}
	if needs.AllNodes {
		nodes, err := e.diagnoser.allNodes(ctx)
		if err != nil {
			e.fail("list nodes", err)
		}
		on.AllNodes = nodes
	}
	e.readClaims(ctx, needs.Claims, &on)
	for _, name := range first(needs.Secrets) {
		_, err := e.Metadata.Resource(corev1.SchemeGroupVersion.WithResource("secrets")).Namespace(e.namespace).Get(ctx,
			name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			on.MissingSecrets = append(on.MissingSecrets, name)
		case err != nil:
			e.note(e.readError("get secrets", err))
		}
	}
	return on
}

func first(names []string) []string { return names[:min(maxObjects, len(names))] }

// allNodes returns the first nodes of the cluster.
func (d *Diagnoser) allNodes(ctx context.Context) ([]corev1.Node, error) {
	d.listNodes.Do(func() {
		nodes, err := d.Cluster.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{Limit: maxListed})
		if err != nil {
			d.nodesErr = err
			return
		}
		d.nodes = nodes.Items
	})
	return d.nodes, d.nodesErr
}

// readClaims reads claims, and the StorageClasses if a claim is not bound.
func (e *explainer) readClaims(ctx context.Context, names []string, on *ready.Dependencies) {
	for _, name := range first(names) {
		claim, err := e.Client.CoreV1().PersistentVolumeClaims(e.namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			if !apierrors.IsNotFound(err) { // the scheduler reports a missing claim
				e.note(e.readError("get persistentvolumeclaims", err))
			}
			continue
		}
		on.Claims = append(on.Claims, *claim)
		if claim.Status.Phase == corev1.ClaimBound || on.Classes != nil {
			continue
		}
		classes, err := e.Client.StorageV1().StorageClasses().List(ctx, metav1.ListOptions{Limit: maxListed})
		if err != nil {
			e.fail("list storageclasses", err)
			continue
		}
		on.Classes = append([]storagev1.StorageClass{}, classes.Items...) // not nil: there may be none
	}
}
