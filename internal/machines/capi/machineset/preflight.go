package machineset

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/version"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/runlevel/runlevel/internal/machines/contract"
)

// oldestSkew is the number of minor versions that a kubelet may be older than the API server.
const oldestSkew = 3

// A preflightCheck returns why no machines can be created.
type preflightCheck struct {
	name   clusterv1.MachineSetPreflightCheck
	failed func(set *clusterv1.MachineSet, plane planeVersions) string
}

// preflightChecks are Cluster API's checks that do not need its ClusterClasses.
var preflightChecks = []preflightCheck{
	{clusterv1.MachineSetPreflightCheckControlPlaneIsStable, instability},
	{clusterv1.MachineSetPreflightCheckKubernetesVersionSkew, versionSkew},
	{clusterv1.MachineSetPreflightCheckKubeadmVersionSkew, notKubeadms},
}

// planeVersions are the desired version of a control plane and the current one, which is nil before it runs.
type planeVersions struct{ wanted, current *version.Version }

// preflight returns an error while no machine can be created: there is no Cluster, or its control plane is being
// created or updated, or the versions do not fit. A Cluster without a control plane reference, or whose control plane
// has no version, is not checked.
func (r *Reconciler) preflight(ctx context.Context, s *snapshot) error {
	if s.cluster == nil {
		return fmt.Errorf("the Cluster %s of spec.clusterName does not exist: create it", s.set.Spec.ClusterName)
	}
	ref := s.cluster.Spec.ControlPlaneRef
	if !ref.IsDefined() {
		return nil
	}
	skipped, err := r.skippedChecks(ctx, s.set)
	if err != nil || slices.Contains(skipped, string(clusterv1.MachineSetPreflightCheckAll)) {
		return err
	}
	controlPlane, err := r.machines.References.Get(ctx, ref, s.cluster.Namespace)
	if err != nil {
		return fmt.Errorf("check the control plane: %w", err)
	}
	plane, err := versionsOf(controlPlane)
	if err != nil || plane.wanted == nil {
		return err
	}
	var failures []error
	for _, check := range preflightChecks {
		if failure := check.failed(s.set, plane); failure != "" && !slices.Contains(skipped, string(check.name)) {
			failures = append(failures, fmt.Errorf("%s %s (preflight check %s)", controlPlane, failure, check.name))
		}
	}
	return errors.Join(failures...)
}

// skippedChecks returns the names of the checks that the annotation of a set lists, or else that of its bootstrap
// config template.
func (r *Reconciler) skippedChecks(ctx context.Context, set *clusterv1.MachineSet) ([]string, error) {
	list := set.Annotations[clusterv1.MachineSetSkipPreflightChecksAnnotation]
	if ref := set.Spec.Template.Spec.Bootstrap.ConfigRef; list == "" && ref.IsDefined() {
		template, err := r.machines.References.Get(ctx, ref, set.Namespace)
		switch {
		case err == nil:
			list = template.GetAnnotations()[clusterv1.MachineSetSkipPreflightChecksAnnotation]
		case !apierrors.IsNotFound(err): // the creation of a machine reports a missing one
			return nil, fmt.Errorf("read which preflight checks are skipped: %w", err)
		}
	}
	return strings.Split(strings.ReplaceAll(list, " ", ""), ","), nil
}

// versionsOf reads the versions of a control plane. The current one is the lowest of its machines.
func versionsOf(controlPlane *contract.Object) (plane planeVersions, err error) {
	wanted, _, _ := unstructured.NestedString(controlPlane.Object, "spec", "version")
	current, _, _ := unstructured.NestedString(controlPlane.Object, "status", "version")
	all, _, _ := unstructured.NestedSlice(controlPlane.Object, "status", "versions")
	if plane.wanted, err = parseVersion(wanted); err != nil {
		return plane, fmt.Errorf("spec.version of %s: %w", controlPlane, err)
	}
	if plane.current, err = parseVersion(current); err != nil {
		return plane, fmt.Errorf("status.version of %s: %w", controlPlane, err)
	}
	for i, item := range all {
		fields, _ := item.(map[string]any)
		text, _ := fields["version"].(string)
		version, err := parseVersion(text)
		if err != nil {
			return plane, fmt.Errorf("status.versions of %s: %w", controlPlane, err)
		}
		if i == 0 || version != nil && plane.current != nil && version.LessThan(plane.current) {
			plane.current = version
		}
	}
	return plane, nil
}

// parseVersion returns nil for an empty text.
func parseVersion(text string) (*version.Version, error) {
	if text == "" {
		return nil, nil
	}
	return version.ParseSemantic(text)
}

func instability(_ *clusterv1.MachineSet, plane planeVersions) string {
	switch {
	case plane.current == nil:
		return "is provisioning"
	case plane.current.LessThan(plane.wanted):
		return fmt.Sprintf("is upgrading from %s to %s", plane.current, plane.wanted)
	}
	return ""
}

func versionSkew(set *clusterv1.MachineSet, plane planeVersions) string {
	machines, err := version.ParseSemantic(set.Spec.Template.Spec.Version)
	switch {
	case err != nil: // no version, or none that can be compared
		return ""
	case machines.Minor() > plane.wanted.Minor():
		return fmt.Sprintf("is of version %s, and machines of version %s would be newer", plane.wanted, machines)
	case machines.Minor()+oldestSkew < plane.wanted.Minor():
		return fmt.Sprintf("is of version %s, and machines of version %s would be more than %d minor versions older",
			plane.wanted, machines, oldestSkew)
	}
	return ""
}

func notKubeadms(set *clusterv1.MachineSet, plane planeVersions) string {
	config := set.Spec.Template.Spec.Bootstrap.ConfigRef
	machines, err := version.ParseSemantic(set.Spec.Template.Spec.Version)
	isKubeadm := config.Kind == "KubeadmConfigTemplate" && config.APIGroup == "bootstrap.cluster.x-k8s.io"
	if err != nil || !isKubeadm || machines.Minor() == plane.wanted.Minor() {
		return ""
	}
	return fmt.Sprintf("is of version %s, and kubeadm lets only machines of its own minor version join, not %s",
		plane.wanted, machines)
}
