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

Of a ControlPlaneMachineSet, or a RunlevelControlPlane (rcp), it shows which machines of the control plane are
replaced or updated in place, for which fields, in which order and failure domain, and what stops it: of the
object on the cluster, or with -f as it is to be, also if there is none yet. Of a set that is Inactive, and a
control plane that is paused, it shows what they do once they are Active.

The rollout is played by the controller's own rules, as if each machine became available and each deletion
ended. Steps with the same number may be done at the same time. "new 1" is a machine that is yet to be made.

Exit codes: 0 when all is known; 1 when an extension was not asked, as the last line shows, when the
rollout would stop in the middle, when a set is Degraded, or when the cluster can't be reached or has no
such object; 2 for misuse, and for a file that can't be read.`

const machinesPlanExamples = `  # What does another version do?
  kubectl get machinedeployment web -n shop-machines -o yaml | sed 's/version: v1.35.0/version: v1.36.0/' >new.yaml
  runlevel machines plan web -n shop-machines -f new.yaml

  # Would an extension that is not registered yet cover it?
  runlevel machines plan web -n shop-machines -f new.yaml --extension https://localhost:9443 --extension-ca tls.crt

  # Is any machine deleted?
  runlevel machines plan web -n shop-machines -f new.yaml -o json | jq '.totals.Delete // 0'

  # Which machines of the control plane does an inactive set replace, once it is Active?
  runlevel machines plan controlplanemachineset/cluster -n shop-machines

  # Which machines of a control plane of Cluster API would another version replace, and which not?
  kubectl get rcp shop -o yaml | sed 's/version: v1.35.0/version: v1.36.0/' | runlevel machines plan rcp/shop -f -`

func newMachinesPlan(streams core.Streams) *cobra.Command {
	var f machinesPlanFlags
	command := &cobra.Command{
		Use:               "plan MACHINEDEPLOYMENT|controlplanemachineset/NAME|runlevelcontrolplane/NAME [-f NEW]",
		Short:             "Preview a rollout: which machines are updated in place, and which replaced",
		Long:              machinesPlanHelp,
		Example:           machinesPlanExamples,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: f.completeNames,
		RunE: func(command *cobra.Command, args []string) error {
			kind, name, hasKind := strings.Cut(args[0], "/")
			controlPlane := rolloutpreview.ControlPlaneKindOf(kind)
			switch {
			case !hasKind:
				return f.run(command.Context(), args[0], streams)
			case controlPlane != nil:
				return f.runControlPlane(command.Context(), *controlPlane, name, streams)
			case strings.HasPrefix(strings.ToLower(kind), "machinedeployment"):
				return f.run(command.Context(), name, streams)
			}
			return core.Misusef("%s: write the name of a MachineDeployment, controlplanemachineset/NAME or "+
				"runlevelcontrolplane/NAME", args[0])
		},
	}
	core.AddConnectionFlags(command, &f.cluster)
	core.AddOutput(command, &f.format)
	flags := command.Flags()
	flags.StringVarP(&f.namespace, "namespace", "n", "",
		"the namespace of the object (default: that in NEW, or else default)")
	flags.StringVarP(&f.file, "filename", "f", "", "the file with the object as it is to be, or - for standard input")
	flags.StringVar(&f.extension, "extension", "",
		"the https URL of an extension that is asked instead of those of ExtensionConfigs")
	flags.StringVar(&f.authority, "extension-ca", "",
		"the file with the CA of the certificate of --extension, as PEM (default: the system's)")
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
	q := rolloutpreview.PreviewQuery{Namespace: f.namespace}
	if f.file == "" {
		return q, core.Misusef("-f is missing: name the file with the MachineDeployment as it is to be")
	}
	var err error
	if q.Extension, err = f.extensionQuery(); err != nil {
		return q, err
	}
	text, err := readFileOr(f.file, in)
	if err == nil {
		q.Wanted, err = rolloutpreview.Read(f.file, text, name)
	}
	if err != nil {
		return q, core.Misuse(err)
	}
	q.Namespace, err = f.namespaceOf("MachineDeployment", q.Wanted.Namespace())
	return q, err
}

// extensionQuery returns which extension is asked.
func (f *machinesPlanFlags) extensionQuery() (q rolloutpreview.ExtensionQuery, err error) {
	if f.authority != "" && f.extension == "" {
		return q, core.Misusef("--extension-ca is for --extension, which is missing")
	}
	q.URL = f.extension
	if f.authority != "" {
		if q.CA, err = os.ReadFile(f.authority); err != nil {
			return q, core.Misuse(err)
		}
	}
	return q, nil
}

// namespaceOf returns the namespace of an object: that of the flag, or of the file.
func (f *machinesPlanFlags) namespaceOf(kind, inFile string) (string, error) {
	if inFile != "" && f.namespace != "" && inFile != f.namespace {
		return "", core.Misusef("--namespace is %s, and the %s in %s is in namespace %s", f.namespace, kind, f.file,
			inFile)
	}
	return cmp.Or(f.namespace, inFile, metav1.NamespaceDefault), nil
}

// readFileOr reads a file, or standard input for "-".
func readFileOr(path string, in io.Reader) ([]byte, error) {
	if path == "-" {
		return io.ReadAll(in)
	}
	return os.ReadFile(path)
}

// completeNames completes the names of MachineDeployments, and of control planes with their kind.
func (f *machinesPlanFlags) completeNames(command *cobra.Command, args []string,
	_ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	deployment := schema.GroupKind{Group: overview.ClusterAPIKind.Group, Kind: "MachineDeployment"}
	names, directive := f.cluster.CompleteMetadata(command, f.namespace, (*metav1.PartialObjectMetadata).GetName,
		deployment)
	for _, kind := range []schema.GroupVersionKind{rolloutpreview.ControlPlaneMachineSetKind,
		rolloutpreview.RunlevelControlPlaneKind} {
		withKind := func(object *metav1.PartialObjectMetadata) string {
			return strings.ToLower(kind.Kind) + "/" + object.Name
		}
		controlPlanes, _ := f.cluster.CompleteMetadata(command, f.namespace, withKind, kind.GroupKind())
		names = append(names, controlPlanes...)
	}
	return names, directive
}
