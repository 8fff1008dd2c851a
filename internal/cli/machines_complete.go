package cli

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/pkg/machine/overview"
)

// completeNames completes the names of machines.
func (f *machinesFlags) completeNames(command *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	names := f.ofMachines(command.Context(), func(m *metav1.PartialObjectMetadata) string { return m.Name })
	return slices.DeleteFunc(names, func(name string) bool { return slices.Contains(args, name) }), cobra.ShellCompDirectiveNoFileComp
}

// completeNamespaces completes the namespaces that have machines.
func (f *machinesFlags) completeNamespaces(command *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return f.ofMachines(command.Context(), func(m *metav1.PartialObjectMetadata) string { return m.Namespace }), cobra.ShellCompDirectiveNoFileComp
}

// ofMachines returns something of all machines, each once, in order. It gives up soon: a shell waits.
func (f *machinesFlags) ofMachines(ctx context.Context, of func(*metav1.PartialObjectMetadata) string) []string {
	const patience = 3 * time.Second
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var found []string
	c, err := f.cluster.connect(ctx)
	if err != nil {
		return nil
	}
	for _, kind := range []schema.GroupKind{overview.Kind, overview.ClusterAPIKind} {
		in, err := c.FindKind(ctx, kind)
		if err != nil {
			continue
		}
		_ = c.EachMetadata(ctx, in, f.namespace, metav1.ListOptions{}, func(m *metav1.PartialObjectMetadata) {
			found = append(found, of(m))
		})
	}
	slices.Sort(found)
	return slices.Compact(found)
}
