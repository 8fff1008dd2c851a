package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"

	"github.com/spf13/cobra"

	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/sandbox"
)

// startFlags are the flags of the commands that start a sandbox.
type startFlags struct {
	sandbox     sandbox.Options
	nodes       int
	gates       map[string]string
	auditPolicy string
}

func addStartFlags(command *cobra.Command, f *startFlags) {
	flags := command.Flags()
	flags.IntVar(&f.nodes, "nodes", 1, "number of simulated nodes; with 0, no scheduler runs")
	flags.IntVar(&f.sandbox.RealNodes, "real-nodes", 0,
		"number of nodes that run containers, instead of simulated ones (Linux, as root)")
	flags.StringArrayVar(&f.sandbox.Images, "image", nil,
		"image for real nodes: an archive, an OCI image layout or a folder of files, as PATH or PATH=NAME (repeatable)")
	flags.BoolVar(&f.sandbox.Offline, "offline", false, "real nodes pull images from the sandbox's registry only")
	flags.StringSliceVar(&f.sandbox.Controllers, "controllers", nil,
		"controllers that run, as for kube-controller-manager (default: its own)")
	flags.StringToStringVar(&f.gates, "feature-gates", nil, "feature gates of Kubernetes, as NAME=true,NAME=false")
	flags.StringVar(&f.auditPolicy, "audit-policy", "",
		"file with an audit policy; the log is audit.log beside the other logs")
	flags.StringSliceVar(&f.sandbox.CRDs, "crds", nil,
		"files and folders of CustomResourceDefinitions to create at the start")
}

// options returns the options of the flags for package sandbox.
func (f *startFlags) options(progress io.Writer) (sandbox.Options, error) {
	o := f.sandbox
	o.Nodes = f.nodes
	o.Progress = progress
	switch {
	case o.RealNodes > 0:
		o.Nodes = 0
	case f.nodes < 0:
		return o, core.Misusef("--nodes %d: use 0 or more", f.nodes)
	case f.nodes == 0:
		o.Nodes = sandbox.NoNodes
	}
	for name, value := range f.gates {
		if value != "true" && value != "false" {
			return o, core.Misusef("--feature-gates %s=%s: use %[1]s=true or %[1]s=false", name, value)
		}
		if o.FeatureGates == nil {
			o.FeatureGates = map[string]bool{}
		}
		o.FeatureGates[name] = value == "true"
	}
	if f.auditPolicy == "" {
		return o, nil
	}
	policy, err := os.ReadFile(f.auditPolicy)
	if err != nil {
		return o, core.Misusef("--audit-policy: %w", err)
	}
	o.AuditPolicy = string(policy)
	return o, nil
}

func newSandboxUp(streams core.Streams) *cobra.Command {
	var flags startFlags
	var name string
	var detach bool
	var format core.Output
	command := &cobra.Command{
		Use:   "up",
		Short: "Start a sandbox and keep it until Ctrl-C",
		Long: `Start a sandbox, print its status, and keep it until Ctrl-C. With --detach it
stays until "runlevel sandbox down".`,
		Example: `  runlevel sandbox up
  runlevel sandbox up --detach --name other --nodes 3
  runlevel sandbox up --real-nodes 2 --image app.tar
  runlevel sandbox up --crds ./crds --audit-policy audit.yaml`,
		RunE: func(command *cobra.Command, _ []string) error {
			o, err := flags.options(streams.Err)
			if err != nil {
				return err
			}
			o.Name = name
			if detach && os.Getenv(ownerEnv) == "" {
				return upDetached(command.Context(), o, format, streams)
			}
			return up(command.Context(), o, format, streams)
		},
	}
	command.Flags().StringVar(&name, "name", defaultSandbox,
		"name of the sandbox; several sandboxes run side by side")
	command.Flags().BoolVarP(&detach, "detach", "d", false, "return when the sandbox is ready, and leave it running")
	addStartFlags(command, &flags)
	core.AddOutput(command, &format)
	return command
}

// up runs a sandbox in the foreground.
func up(ctx context.Context, o sandbox.Options, format core.Output, streams core.Streams) (err error) {
	s, err := sandbox.Start(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	if err := printReady(streams.Out, s.Name, format); err != nil {
		return err
	}
	fmt.Fprintln(streams.Err, "Ctrl-C stops it.")
	select {
	case <-ctx.Done():
		return nil // Ctrl-C is the way to stop it
	case err := <-s.Died():
		return err
	}
}

// ownerEnv marks the process that "up --detach" starts to own the sandbox.
const ownerEnv = "RUNLEVEL_SANDBOX_OWNER"

// upDetached starts a process that runs the sandbox in the foreground, and waits until the sandbox is ready.
func upDetached(ctx context.Context, o sandbox.Options, format core.Output, streams core.Streams) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	owner := exec.Command(self, os.Args[1:]...)
	owner.Env = append(os.Environ(), ownerEnv+"=1")
	if err := sandbox.StartDetached(ctx, o, owner, core.ErrorPrefix); err != nil {
		return err
	}
	return printReady(streams.Out, o.Name, format)
}

func printReady(out io.Writer, name string, format core.Output) error {
	state, err := sandbox.Find(name)
	if err != nil {
		return err
	}
	return format.Print(out, state, func(out io.Writer) error { return printState(out, state) })
}
