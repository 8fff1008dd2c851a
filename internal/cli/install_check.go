package cli

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/runlevel/runlevel/pkg/kinds"
	"github.com/runlevel/runlevel/pkg/objectmeta"
)

// theirOperator is the Deployment of the cluster-version operator.
var theirOperator = kinds.ID{Group: "apps", Kind: "Deployment", Namespace: "openshift-cluster-version", Name: "cluster-version-operator"}

// checkAlone refuses to install over an operator that is part of a release, which sets its image, and beside a
// cluster-version operator, which would apply its own release to the same objects.
func (s *operatorSetup) checkAlone(ctx context.Context) error {
	in, err := s.cluster.Find(ctx, deployments)
	if err != nil {
		return err
	}
	head, err := s.cluster.GetMetadata(ctx, in, theOperator.Namespace, theOperator.Name)
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		return err
	case head.Labels[objectmeta.ReleaseLabel] != "":
		return fmt.Errorf("the operator is part of release %s on this cluster, and is updated with it: to begin anew, \"runlevel uninstall --operator\" first", head.Labels[objectmeta.ReleaseLabel])
	}
	theirs, err := s.cluster.In(in, theirOperator.Namespace).Get(ctx, theirOperator.Name, metav1.GetOptions{})
	if err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("get %s: %w", theirOperator, err)
	}
	if replicas, _, _ := unstructured.NestedInt64(theirs.Object, "spec", "replicas"); replicas > 0 {
		return fmt.Errorf("%s runs, and would apply its own release to the same objects: to replace it, \"kubectl -n %s scale deployment/%s --replicas=0\" first",
			theirOperator, theirOperator.Namespace, theirOperator.Name)
	}
	return nil
}
