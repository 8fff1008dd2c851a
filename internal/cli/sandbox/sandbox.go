// Package sandbox defines the verb sandbox, whose subcommands start, list and stop control planes on this machine.
//
// They parse flags, call internal/sandbox, and print the results. They do not know releases.
//
// New returns the verb sandbox. Start with New.
package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/binaries"
)

// defaultSandbox is the default of --name.
const defaultSandbox = "default"

// New returns the verb sandbox.
func New(streams core.Streams) *cobra.Command {
	command := &cobra.Command{
		Use:   "sandbox",
		Short: "Run a real control plane on this machine, for experiments and tests",
		Long: `A sandbox is a Kubernetes control plane of the real programs. It starts in
seconds on the loopback and is deleted when it stops. Nodes and pods are simulated:
Deployments roll out and Jobs complete, but no container runs. With --real-nodes, nodes
run containers (Linux, as root).

The programs come from the folder that KUBEBUILDER_ASSETS names, or from a cache.
Otherwise they are downloaded, or built from Go modules, which takes some minutes, once.`,
		Example: `  runlevel sandbox up --detach
  kubectl --kubeconfig "$(runlevel sandbox kubeconfig)" get nodes
  runlevel sandbox down

  # for one command only
  runlevel sandbox exec -- kubectl get nodes`,
		Args: cobra.NoArgs,
		RunE: core.NeedsVerb,
	}
	command.AddCommand(newSandboxUp(streams), newSandboxDown(streams), newSandboxStatus(streams),
		newSandboxKubeconfig(streams), newSandboxLogs(streams), newSandboxExec(streams), newSandboxBuild(streams))
	return command
}

// addName adds --name, for commands on a single sandbox.
func addName(command *cobra.Command, name *string) {
	command.Flags().StringVar(name, "name", defaultSandbox, "which sandbox")
	_ = command.RegisterFlagCompletionFunc("name", completeSandboxes)
}

func completeSandboxes(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	states, err := sandbox.List()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []string
	for _, state := range states {
		if state.Failure == "" {
			names = append(names, state.Name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

func newSandboxDown(streams core.Streams) *cobra.Command {
	var name string
	command := &cobra.Command{
		Use:   "down",
		Short: "Stop a sandbox and delete everything in it",
		Example: `  runlevel sandbox down
  runlevel sandbox down --name other`,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := sandbox.Down(command.Context(), name); err != nil {
				return withHint(err)
			}
			fmt.Fprintf(streams.Err, "sandbox %s is stopped\n", name)
			return nil
		},
	}
	addName(command, &name)
	return command
}

func newSandboxStatus(streams core.Streams) *cobra.Command {
	var format core.Output
	command := &cobra.Command{
		Use:   "status",
		Short: "List the sandboxes, with their components",
		Long: `List the sandboxes of this user, including those of tests: the ones that run, with
their components, and the ones that failed in the last hour, with the reason. Also
delete the files of sandboxes that were killed, or that ended with a reboot.`,
		Example: `  runlevel sandbox status
  runlevel sandbox status -o json`,
		RunE: func(*cobra.Command, []string) error {
			states, err := sandbox.List()
			if err != nil {
				return err
			}
			if states == nil {
				states = []sandbox.Status{} // so that JSON has [] and not null
			}
			return format.Print(streams.Out, states, func(out io.Writer) error { return printStates(out, states) })
		},
	}
	core.AddOutput(command, &format)
	return command
}

func printStates(out io.Writer, states []sandbox.Status) error {
	if len(states) == 0 {
		_, err := fmt.Fprintln(out, "no sandbox is running")
		return err
	}
	for _, state := range states {
		if err := printState(out, state); err != nil {
			return err
		}
	}
	return nil
}

// printState writes a sandbox with a line for each component.
func printState(out io.Writer, state sandbox.Status) error {
	if state.Failure != "" {
		_, err := fmt.Fprintf(out, "sandbox %s has failed: %s\n", state.Name, state.Failure)
		return err
	}
	readiness := "ready"
	if !state.Ready {
		readiness = "not ready"
	}
	fmt.Fprintf(out, "sandbox %s is %s, up for %s at %s\n", state.Name, readiness,
		time.Since(state.Started).Round(time.Second), state.Server)
	var rows []string
	for _, component := range state.Components {
		running := "not running"
		if component.PID != 0 {
			running = fmt.Sprintf("process %d", component.PID)
		}
		rows = append(rows, fmt.Sprintf("  %s\t%s\t%s", component.Name, running, component.Log))
	}
	if state.Registry != "" {
		rows = append(rows, "  registry of images\t\t"+state.Registry)
	}
	return core.PrintLines(out, core.Align(append(rows, "  kubeconfig\t\t"+state.Kubeconfig)))
}

func newSandboxKubeconfig(streams core.Streams) *cobra.Command {
	var name string
	command := &cobra.Command{
		Use:   "kubeconfig",
		Short: "Print the path of a sandbox's kubeconfig",
		Long: fmt.Sprintf(`Print the path of a sandbox's kubeconfig. It has two contexts: %q, which may do
everything and is never throttled, and %q, an ordinary cluster-admin.`, sandbox.AdminUser, sandbox.OrdinaryUser),
		Example: `  export KUBECONFIG="$(runlevel sandbox kubeconfig)"
  kubectl --context user get nodes`,
		RunE: func(*cobra.Command, []string) error {
			state, err := sandbox.Find(name)
			if err != nil {
				return withHint(err)
			}
			_, err = fmt.Fprintln(streams.Out, state.Kubeconfig)
			return err
		},
	}
	addName(command, &name)
	return command
}

func newSandboxLogs(streams core.Streams) *cobra.Command {
	var name string
	var follow bool
	command := &cobra.Command{
		Use:   "logs COMPONENT",
		Short: "Print the log of a component",
		Long:  "Print the log of a component: " + strings.Join(sandbox.Components(), ", ") + ".",
		Example: `  runlevel sandbox logs kube-apiserver
  runlevel sandbox logs kwok --follow`,
		Args:              checkComponent,
		ValidArgsFunction: core.CompleteOne(sandbox.Components()),
		RunE: func(command *cobra.Command, args []string) error {
			return printLog(command.Context(), streams.Out, name, args[0], follow)
		},
	}
	addName(command, &name)
	command.Flags().BoolVarP(&follow, "follow", "f", false, "print new lines until Ctrl-C")
	return command
}

// checkComponent requires the name of one component.
func checkComponent(command *cobra.Command, args []string) error {
	if err := cobra.ExactArgs(1)(command, args); err != nil {
		return err
	}
	if !slices.Contains(sandbox.Components(), args[0]) {
		return fmt.Errorf("a sandbox has no component %q: use one of %s", args[0],
			strings.Join(sandbox.Components(), ", "))
	}
	return nil
}

// logInterval is the interval at which a followed log is read.
const logInterval = 200 * time.Millisecond

// printLog prints the log of a component of a sandbox.
func printLog(ctx context.Context, out io.Writer, name, component string, follow bool) error {
	state, err := sandbox.Find(name)
	if err != nil {
		return withHint(err)
	}
	i := slices.IndexFunc(state.Components, func(c sandbox.ComponentStatus) bool { return c.Name == component })
	switch {
	case len(state.Components) == 0:
		return fmt.Errorf("sandbox %s is still starting", name)
	case i < 0:
		return fmt.Errorf("sandbox %s has no component %s: it was started without nodes", name, component)
	}
	log, err := os.Open(state.Components[i].Log)
	if err != nil {
		return err
	}
	defer log.Close()
	tick := time.NewTicker(logInterval)
	defer tick.Stop()
	for {
		if _, err := io.Copy(out, log); err != nil || !follow {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

const buildHelp = `Find the programs of the control plane, download them from a release of Runlevel, or
build them, and print their paths. The other commands do this when necessary; this one
does it ahead of time. RUNLEVEL_SANDBOX_DOWNLOADS is the address of a mirror of the
release's files, or "none". A build takes about 5 minutes on 2 cores, once; if it is
interrupted, the next one continues. The programs of real nodes, kubelet and kube-proxy,
are always built, which takes about 4 minutes more.`

func newSandboxBuild(streams core.Streams) *cobra.Command {
	var (
		format   core.Output
		forNodes bool
	)
	command := &cobra.Command{
		Use:   "build",
		Short: "Find, download or build the programs of the control plane, and print their paths",
		Long:  buildHelp,
		Example: `  runlevel sandbox build
  runlevel sandbox build --real-nodes`,
		RunE: func(command *cobra.Command, _ []string) error {
			return printPrograms(command.Context(), forNodes, format, streams)
		},
	}
	command.Flags().BoolVar(&forNodes, "real-nodes", false, "also the programs of real nodes (Linux)")
	core.AddOutput(command, &format)
	return command
}

// printPrograms finds, downloads or builds the programs of a sandbox, and prints their paths.
func printPrograms(ctx context.Context, forNodes bool, format core.Output, streams core.Streams) error {
	names := sandbox.Components()
	if forNodes {
		names = append(names, binaries.NodeNames()...)
	}
	programs, err := binaries.Locate(ctx, names, streams.Err)
	if err != nil {
		return err
	}
	return format.Print(streams.Out, programs, func(out io.Writer) error {
		var rows []string
		for _, name := range names {
			rows = append(rows, name+"\t"+programs[name])
		}
		return core.PrintLines(out, core.Align(rows))
	})
}

// withHint adds the next command to the error for a missing sandbox.
func withHint(err error) error {
	if errors.Is(err, sandbox.ErrNotRunning) {
		return fmt.Errorf("%w: start it with \"runlevel sandbox up\", or see \"runlevel sandbox status\"", err)
	}
	return err
}
