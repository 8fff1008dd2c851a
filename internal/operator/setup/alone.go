package setup

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/runlevel/runlevel/internal/cluster/objectmeta"
	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// clusterVersionOperator is the Deployment of the cluster-version operator.
var clusterVersionOperator = kinds.NewID(kinds.Deployment, "openshift-cluster-version", "cluster-version-operator")

// checkAlone refuses to install over an operator that is part of a release, which sets its image, and beside a
// cluster-version operator, which would apply its own release to the same objects.
func (i *Installer) checkAlone(ctx context.Context) error {
	deploymentsOf := i.Cluster.Client.AppsV1().Deployments
	own, err := deploymentsOf(theOperator.Namespace).Get(ctx, theOperator.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		return fmt.Errorf("get %s: %w", theOperator, err)
	case own.Labels[objectmeta.ReleaseLabel] != "":
		return fmt.Errorf("the operator is part of release %s on this cluster, and is updated with it: to start "+
			"over, \"runlevel uninstall --operator\" first", own.Labels[objectmeta.ReleaseLabel])
	}
	theirs, err := deploymentsOf(clusterVersionOperator.Namespace).Get(ctx, clusterVersionOperator.Name,
		metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		return fmt.Errorf("get %s: %w", clusterVersionOperator, err)
	case ptr.Deref(theirs.Spec.Replicas, 1) > 0:
		return fmt.Errorf("%s runs, and would apply its own release to the same objects: to replace it, \"kubectl -n "+
			"%s scale deployment/%s --replicas=0\" first",
			clusterVersionOperator, clusterVersionOperator.Namespace, clusterVersionOperator.Name)
	}
	return nil
}
