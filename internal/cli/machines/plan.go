package machines

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/runlevel/runlevel/internal/cli/core"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/machines/rolloutpreview"
)

// planFlags are the flags of runlevel machines plan.
type planFlags struct {
	cluster   core.ClusterFlags
	format    core.Output
	namespace string
	file      string
	extension string
	authority string
}

const planHelp = `Preview the effects of a changed MachineDeployment of Cluster API on its machines: which are updated in
place, which are replaced and why, and in which order. The command changes nothing.

-f names a file with the wanted MachineDeployment. Further documents of the file are the templates that it names
and that do not exist on the cluster yet. The preview asks extensions whether they support the change: those of the
cluster's ExtensionConfigs, or the extension of --extension, which must be reachable from here.

For a ControlPlaneMachineSet or a RunlevelControlPlane (rcp), the preview shows which machines of the control
plane are replaced or updated in place, for which fields, in which order and failure domain, and what stops the
rollout. It is about the object on the cluster, or with -f about the wanted object, which need not exist yet. If
a set is Inactive, or a control plane is paused, the preview shows what happens once it is Active.

The rollout is simulated by the rules of the controllers: each machine becomes available, and each deletion
ends. Steps with the same number can run at the same time. "new 1" is a machine that does not exist yet.

Exit codes: 0 when all is known; 1 when an extension was not asked, as the last line shows, when the
rollout would stop before its end, when a set is Degraded, or when the cluster can't be reached or does not have
the object; 2 for misuse, and for a file that can't be read.`

const planExamples = `  # What does another version do?
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

// newPlan returns the verb machines plan.
func newPlan(streams core.Streams) *cobra.Command {
	var f planFlags
	command := &cobra.Command{
		Use:               "plan MACHINEDEPLOYMENT|controlplanemachineset/NAME|runlevelcontrolplane/NAME [-f NEW]",
		Short:             "Preview a rollout: which machines are updated in place, and which replaced",
		Long:              planHelp,
		Example:           planExamples,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: f.completeNames,
		RunE: func(command *cobra.Command, args []string) error {
			return f.run(command.Context(), args[0], streams)
		},
	}
	core.AddConnectionFlags(command, &f.cluster)
	core.AddOutput(command, &f.format)
	flags := command.Flags()
	flags.StringVarP(&f.namespace, "namespace", "n", "",
		"the namespace of the object (default: that in NEW, or else default)")
	flags.StringVarP(&f.file, "filename", "f", "", "the file with the wanted object, or - for standard input")
	flags.StringVar(&f.extension, "extension", "",
		"the https URL of an extension to ask instead of those in ExtensionConfigs")
	flags.StringVar(&f.authority, "extension-ca", "",
		"the file with the CA of the certificate of --extension, as PEM (default: the system's)")
	return command
}

func (f *planFlags) run(ctx context.Context, object string, streams core.Streams) error {
	q, err := f.query(object, streams.In)
	if err != nil {
		return core.Misuse(err)
	}
	c, err := f.cluster.Connect(ctx)
	if err != nil {
		return err
	}
	preview, err := rolloutpreview.Make(ctx, c, q)
	if err != nil {
		return err
	}
	text := func(out io.Writer) error { return core.PrintLines(out, preview.Lines()) }
	if err := f.format.PrintWhole(streams.Out, preview, text); err != nil {
		return err
	}
	return core.FailIf(!preview.IsComplete())
}

// query returns the query for an object, which the arguments and the file name. Its errors are misuse.
func (f *planFlags) query(object string, reader io.Reader) (q rolloutpreview.Query, err error) {
	q.Kind, q.Name = rolloutpreview.DeploymentKind, object
	if kindName, name, hasKind := strings.Cut(object, "/"); hasKind {
		kind := rolloutpreview.KindOf(kindName)
		if kind == nil {
			return q, fmt.Errorf("%s: pass the name of a MachineDeployment, controlplanemachineset/NAME or "+
				"runlevelcontrolplane/NAME", object)
		}
		q.Kind, q.Name = *kind, name
	}
	switch {
	case q.Kind == rolloutpreview.DeploymentKind && f.file == "":
		return q, errors.New("-f is missing: pass the file with the wanted MachineDeployment")
	case q.Kind == rolloutpreview.ControlPlaneMachineSetKind && (f.extension != "" || f.authority != ""):
		return q, errors.New("--extension is for machines of Cluster API: a ControlPlaneMachineSet updates no " +
			"machine in place")
	case f.authority != "" && f.extension == "":
		return q, errors.New("--extension-ca requires --extension")
	}
	q.Extension.URL = f.extension
	if f.authority != "" {
		if q.Extension.CA, err = os.ReadFile(f.authority); err != nil {
			return q, err
		}
	}
	inFile := ""
	if f.file != "" {
		text, err := readFileOr(f.file, reader)
		if err != nil {
			return q, err
		}
		if q.Wanted, err = rolloutpreview.Read(q.Kind, q.Name, f.file, text); err != nil {
			return q, err
		}
		inFile = q.Wanted.Namespace()
	}
	if inFile != "" && f.namespace != "" && inFile != f.namespace {
		return q, fmt.Errorf("--namespace is %s, and the %s in %s is in namespace %s",
			f.namespace, q.Kind.Kind, f.file, inFile)
	}
	q.Namespace = cmp.Or(f.namespace, inFile, metav1.NamespaceDefault)
	return q, nil
}

// readFileOr reads a file; "-" is standard input.
func readFileOr(path string, reader io.Reader) ([]byte, error) {
	if path == "-" {
		return io.ReadAll(reader)
	}
	return os.ReadFile(path)
}

// completeNames completes the names of MachineDeployments, and those of control planes with their kinds.
func (f *planFlags) completeNames(command *cobra.Command, args []string,
	_ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	names, directive := f.cluster.CompleteMetadata(command, f.namespace, (*metav1.PartialObjectMetadata).GetName,
		rolloutpreview.DeploymentKind.GroupKind())
	for _, kind := range []schema.GroupVersionKind{
		rolloutpreview.ControlPlaneMachineSetKind, rolloutpreview.RunlevelControlPlaneKind,
	} {
		withKind := func(object *metav1.PartialObjectMetadata) string {
			return strings.ToLower(kind.Kind) + "/" + object.Name
		}
		controlPlanes, _ := f.cluster.CompleteMetadata(command, f.namespace, withKind, kind.GroupKind())
		names = append(names, controlPlanes...)
	}
	return names, directive
}
