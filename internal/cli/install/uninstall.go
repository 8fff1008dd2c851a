package install

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/runlevel/runlevel/internal/cli/core"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/install"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/pkg/apply/object"
)

// uninstallFlags are the flags of runlevel uninstall.
type uninstallFlags struct {
	setupFlags
	operator bool
}

const uninstallHelp = `Uninstall the operator: its alerts and scrape configuration, its Deployment, and then its Service,
NetworkPolicy, admission policy, rights, service account and quota. It has ended before its rights
go.

What it has applied stays, and is neither kept in place nor updated any more. ClusterVersion and
ClusterOperators stay with their definitions, and so does the namespace runlevel-system, with the
record of the release and the operator's settings. So "runlevel install" goes on where this operator stopped, and
"runlevel apply" works with the same record.

To remove these as well:

  # The objects of the release; namespaces and definitions take along what is in them
  kinds=$(kubectl api-resources --verbs=list,delete -o name | paste -sd,)
  kubectl delete "$kinds" --all-namespaces -l runlevel.dev/release=default

  # ClusterVersion, ClusterOperators and their definitions
  kubectl delete crd clusterversions.config.openshift.io clusteroperators.config.openshift.io

  # The record of the release
  kubectl delete namespace runlevel-system

Exit codes: 0 when the operator is gone, 1 for a failure, 2 for misuse.`

// NewUninstall returns the verb uninstall.
func NewUninstall(streams core.Streams) *cobra.Command {
	var f uninstallFlags
	command := &cobra.Command{
		Use:   "uninstall --operator",
		Short: "Uninstall the operator, and leave what it has applied",
		Long:  uninstallHelp,
		Example: `  # What would be deleted?
  runlevel uninstall --operator --dry-run=server

  runlevel uninstall --operator`,
		RunE: func(command *cobra.Command, _ []string) error {
			return f.run(command.Context(), streams)
		},
	}
	f.add(command, "has ended")
	command.Flags().BoolVar(&f.operator, "operator", false, "uninstall the operator: nothing else can be")
	return command
}

func (f *uninstallFlags) run(ctx context.Context, streams core.Streams) error {
	if !f.operator {
		return core.Misusef("--operator is missing: only the operator is uninstalled, and what it has applied stays (\"runlevel uninstall --help\" shows how to remove that)")
	}
	if err := f.check(); err != nil {
		return err
	}
	set, err := f.setup(ctx, streams)
	if err != nil {
		return err
	}
	err = set.uninstall(ctx, f.timeout)
	if err == nil && f.format == core.Text {
		fmt.Fprintln(streams.Out, "what the operator has applied stays: \"runlevel uninstall --help\" shows how to remove it")
	}
	return errors.Join(err, set.printReport())
}

// stays reports whether an uninstall keeps an object: definitions and namespaces hold the release and its record.
func stays(of *unstructured.Unstructured) bool {
	kind := of.GroupVersionKind().GroupKind()
	return kind == kinds.CustomResourceDefinition || kind == kinds.Namespace
}

// uninstall deletes the objects in the opposite order of an install.
func (s *operatorSetup) uninstall(ctx context.Context, timeout time.Duration) error {
	monitoring, err := s.monitoring(ctx)
	if err != nil {
		return err
	}
	objects := append(install.Objects(), monitoring...)
	slices.Reverse(objects)
	for _, item := range objects {
		if stays(item) {
			continue
		}
		if err := s.remove(ctx, item, timeout); err != nil {
			return err
		}
	}
	staying := []*unstructured.Unstructured{settingsObject()}
	for _, object := range objects {
		if stays(object) {
			staying = append(staying, object)
		}
	}
	for _, object := range staying {
		if err := s.noteStays(ctx, object); err != nil {
			return err
		}
	}
	return nil
}

// settingsObject returns the ConfigMap with the operator's flags, which is not an object of the install.
func settingsObject() *unstructured.Unstructured {
	settings := &unstructured.Unstructured{}
	settings.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: theSettings.Kind})
	settings.SetNamespace(theSettings.Namespace)
	settings.SetName(theSettings.Name)
	return settings
}

// remove deletes an object, and waits until it is gone. A Deployment is gone when its pods are: until then they
// may release the Lease, and a release that has the Deployment can't create it again.
func (s *operatorSetup) remove(ctx context.Context, item *unstructured.Unstructured, timeout time.Duration) error {
	id := idOf(item)
	in, err := s.cluster.Find(ctx, item.GroupVersionKind())
	if err != nil {
		return err
	}
	place := s.cluster.In(in, id.Namespace)
	head, err := s.cluster.GetMetadata(ctx, in, id.Namespace, id.Name)
	if err == nil {
		options := metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &head.UID}, PropagationPolicy: new(metav1.DeletePropagationForeground),
		}
		if s.report.DryRun {
			options.DryRun = []string{metav1.DryRunAll}
		}
		err = place.Delete(ctx, id.Name, options)
	}
	switch {
	case apierrors.IsNotFound(err):
		s.note(id, object.Absent, "")
		return nil
	case err != nil:
		return fmt.Errorf("delete %s: %w", id, err)
	}
	if !s.report.DryRun {
		waiting, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("it is still there after %s", timeout))
		defer cancel()
		if _, err := sandbox.Await(waiting, place, id.Name, func(seen *unstructured.Unstructured) bool {
			return seen == nil || seen.GetUID() != head.UID
		}); err != nil {
			return fmt.Errorf("delete %s: %w", id, err)
		}
	}
	s.note(id, object.Deleted, "")
	return nil
}

// noteStays reports an object that is kept.
func (s *operatorSetup) noteStays(ctx context.Context, item *unstructured.Unstructured) error {
	id := idOf(item)
	in, err := s.cluster.Find(ctx, item.GroupVersionKind())
	if err != nil {
		return err
	}
	_, err = s.cluster.GetMetadata(ctx, in, id.Namespace, id.Name)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("get %s: %w", id, err)
	}
	s.note(id, object.Left, "")
	return nil
}
