package machines

import (
	"cmp"
	"context"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/runlevel/runlevel/internal/cli/core"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/machines/overview"
	"github.com/runlevel/runlevel/internal/machines/rolloutpreview"
)

// machinesPlanFlags are the flags of runlevel machines plan.
type machinesPlanFlags struct {
	cluster   core.ClusterFlags
	format    core.Output
	namespace string
	file      string
	extension string
	authority string
}

const machinesPlanHelp = `Show what a changed MachineDeployment of Cluster API would do to its machines: which are updated in place,
which are replaced and why, and in which order. Nothing is changed.

-f names a file with the MachineDeployment as it is to be, and, as further documents, the templates that
it names and that are not on the cluster yet. Extensions are asked whether they can do the change:
those of the cluster's ExtensionConfigs, or the one of --extension, which has to be reachable from here.

Of a ControlPlaneMachineSet, it shows which machines of the control plane are replaced, for which fields,
in which order and failure domain, and what stops the set: of the set on the cluster, or with -f as it is
to be, also if there is none yet. Of a set that is Inactive, it shows what it does once it is Active.

The rollout is played by the controller's own rules, as if each machine became available and each deletion
ended. Steps with the same number may be done at the same time. "new 1" is a machine that is yet to be made.

Exit codes: 0 when all is known; 1 when an extension was not asked, as the last line shows, when the
rollout would stop in the middle, when the set is Degraded, or when the cluster can't be reached or has no
such object; 2 for misuse, and for a file that can't be read.`

const machinesPlanExamples = `  # What does another version do?
  kubectl get machinedeployment web -n shop-machines -o yaml | sed 's/version: v1.35.0/version: v1.36.0/' >new.yaml
  runlevel machines plan web -n shop-machines -f new.yaml

  # Would an extension that is not registered yet cover it?
  runlevel machines plan web -n shop-machines -f new.yaml --extension https://localhost:9443 --extension-ca tls.crt

  # Is any machine deleted?
  runlevel machines plan web -n shop-machines -f new.yaml -o json | jq '.totals.Delete // 0'

  # Which machines of the control plane does an inactive set replace, once it is Active?
  runlevel machines plan controlplanemachineset/cluster -n shop-machines`

func newMachinesPlan(streams core.Streams) *cobra.Command {
	var f machinesPlanFlags
	command := &cobra.Command{
		Use:               "plan MACHINEDEPLOYMENT|controlplanemachineset/NAME [-f NEW]",
		Short:             "Preview a rollout: which machines are updated in place, and which replaced",
		Long:              machinesPlanHelp,
		Example:           machinesPlanExamples,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: f.completeNames,
		RunE: func(command *cobra.Command, args []string) error {
			kind, name, hasKind := strings.Cut(args[0], "/")
			switch {
			case !hasKind:
				return f.run(command.Context(), args[0], streams)
			case rolloutpreview.IsControlPlane(kind):
				return f.runControlPlane(command.Context(), name, streams)
			case strings.HasPrefix(strings.ToLower(kind), "machinedeployment"):
				return f.run(command.Context(), name, streams)
			}
			return core.Misusef("%s: write the name of a MachineDeployment, or controlplanemachineset/NAME", args[0])
		},
	}
	core.AddConnectionFlags(command, &f.cluster)
	core.AddOutput(command, &f.format)
	flags := command.Flags()
	flags.StringVarP(&f.namespace, "namespace", "n", "", "the namespace of the MachineDeployment or the set (default: that in NEW, or else default)")
	flags.StringVarP(&f.file, "filename", "f", "", "the file with the MachineDeployment, or the set, as it is to be, or - for standard input")
	flags.StringVar(&f.extension, "extension", "", "the https URL of an extension that is asked instead of those of ExtensionConfigs")
	flags.StringVar(&f.authority, "extension-ca", "", "the file with the CA of the certificate of --extension, as PEM (default: the system's)")
	return command
}

func (f *machinesPlanFlags) run(ctx context.Context, name string, streams core.Streams) error {
	q, err := f.query(name, streams.In)
	if err != nil {
		return err
	}
	c, err := f.cluster.Connect(ctx)
	if err != nil {
		return err
	}
	preview, err := rolloutpreview.Preview(ctx, c, q)
	if err != nil {
		return err
	}
	text := func(out io.Writer) error { return core.PrintLines(out, preview.Lines()) }
	if err := f.format.PrintWhole(streams.Out, preview, text); err != nil {
		return err
	}
	return core.FailIf(preview.Unanswered != "" || preview.IsStuck)
}

// query reads the files.
func (f *machinesPlanFlags) query(name string, in io.Reader) (rolloutpreview.PreviewQuery, error) {
	q := rolloutpreview.PreviewQuery{Namespace: f.namespace, URL: f.extension}
	switch {
	case f.file == "":
		return q, core.Misusef("-f is missing: name the file with the MachineDeployment as it is to be")
	case f.authority != "" && f.extension == "":
		return q, core.Misusef("--extension-ca is for --extension, which is missing")
	}
	text, err := readFileOr(f.file, in)
	if err == nil && f.authority != "" {
		q.CA, err = os.ReadFile(f.authority)
	}
	if err == nil {
		q.Wanted, err = rolloutpreview.Read(f.file, text, name)
	}
	if err != nil {
		return q, core.Misuse(err)
	}
	q.Namespace, err = f.namespaceOf("MachineDeployment", q.Wanted.Namespace())
	return q, err
}

// namespaceOf returns the namespace of an object: that of the flag, or of the file.
func (f *machinesPlanFlags) namespaceOf(kind, inFile string) (string, error) {
	if inFile != "" && f.namespace != "" && inFile != f.namespace {
		return "", core.Misusef("--namespace is %s, and the %s in %s is in namespace %s", f.namespace, kind, f.file, inFile)
	}
	return cmp.Or(f.namespace, inFile, metav1.NamespaceDefault), nil
}

// runControlPlane previews a ControlPlaneMachineSet.
func (f *machinesPlanFlags) runControlPlane(ctx context.Context, name string, streams core.Streams) error {
	if f.extension != "" || f.authority != "" {
		return core.Misusef("--extension is for MachineDeployments: a ControlPlaneMachineSet updates no machine in place")
	}
	q := rolloutpreview.ControlPlaneQuery{Name: name}
	inFile := ""
	if f.file != "" {
		text, err := readFileOr(f.file, streams.In)
		if err == nil {
			q.Wanted, err = rolloutpreview.ReadControlPlaneMachineSet(f.file, text, name)
		}
		if err != nil {
			return core.Misuse(err)
		}
		inFile = q.Wanted.Namespace
	}
	var err error
	if q.Namespace, err = f.namespaceOf("ControlPlaneMachineSet", inFile); err != nil {
		return err
	}
	c, err := f.cluster.Connect(ctx)
	if err != nil {
		return err
	}
	preview, err := rolloutpreview.PreviewControlPlane(ctx, c, q)
	if err != nil {
		return err
	}
	text := func(out io.Writer) error { return core.PrintLines(out, preview.Lines()) }
	if err := f.format.PrintWhole(streams.Out, preview, text); err != nil {
		return err
	}
	return core.FailIf(preview.Degraded != "" || preview.IsStuck)
}

// readFileOr reads a file, or standard input for "-".
func readFileOr(path string, in io.Reader) ([]byte, error) {
	if path == "-" {
		return io.ReadAll(in)
	}
	return os.ReadFile(path)
}

// completeNames completes the names of MachineDeployments, and of sets with their kind.
func (f *machinesPlanFlags) completeNames(command *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	deployment := schema.GroupKind{Group: overview.ClusterAPIKind.Group, Kind: "MachineDeployment"}
	names, directive := f.cluster.CompleteMetadata(command, f.namespace, (*metav1.PartialObjectMetadata).GetName, deployment)
	withKind := func(set *metav1.PartialObjectMetadata) string { return "controlplanemachineset/" + set.Name }
	sets, _ := f.cluster.CompleteMetadata(command, f.namespace, withKind, rolloutpreview.ControlPlaneMachineSetKind.GroupKind())
	return append(names, sets...), directive
}
