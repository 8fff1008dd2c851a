// Package cli is the runlevel command: its verbs, with their common help, completion, verbosity
// and arguments.
//
// The verbs are in the packages below it, by groups; each reads flags, calls the package that does the work, and prints
// the result. Results in text, JSON and YAML go to standard output; progress, logs and errors go to standard error.
//
// Start with Run.
package cli

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/text/reason"
)

// Run runs one command line and returns the exit code.
func Run(ctx context.Context, args []string, streams core.Streams) int {
	root := NewRoot(streams)
	root.SetArgs(args)
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.Err)
	interruptible, interrupt := context.WithCancelCause(context.WithoutCancel(ctx))
	defer context.AfterFunc(ctx, func() { interrupt(reason.ErrInterrupted) })()
	err := root.ExecuteContext(withLogger(interruptible, klog.Background()))
	klog.Flush()
	return core.ExitCode(err, streams.Err)
}

// NewRoot returns the command "runlevel", with all verbs.
func NewRoot(streams core.Streams) *cobra.Command {
	root := &cobra.Command{
		Use:   "runlevel",
		Short: "Apply release payloads to any Kubernetes cluster",
		Long: `Runlevel applies a release payload, a folder of numbered Kubernetes manifests,
to any cluster, the way OpenShift's cluster-version operator does.

Exit codes: 0 for success, 1 for findings or a failure, 2 for misuse.`,
		Example: `  # What would an update change, and which objects would stay?
  runlevel plan ./old ./new

  # A control plane to try things on
  runlevel sandbox up --detach
  kubectl --kubeconfig "$(runlevel sandbox kubeconfig)" get nodes
  runlevel sandbox down`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE:          printHelpOrVersion,
		PersistentPreRunE: func(command *cobra.Command, _ []string) error {
			return refuseEmptyFlags(command.Flags())
		},
	}
	if strings.HasPrefix(filepath.Base(os.Args[0]), "kubectl-") { // kubectl runs it as a plugin
		root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl runlevel"}
	}
	root.SetFlagErrorFunc(wrongFlag)
	root.Flags().Bool(versionFlag, false, "version for "+root.DisplayName())
	addVerbosity(root)
	addVerbs(root, streams)
	nameExamples(root, root.DisplayName())
	groupFlags(root)
	root.InitDefaultCompletionCmd()
	checkArgs(root)
	checkDefaults(root)
	completeFlags(root)
	return root
}

// nameExamples writes the name under which kubectl runs the program into the examples of a verb and of those below it.
func nameExamples(command *cobra.Command, name string) {
	command.Example = strings.NewReplacer("  runlevel ", "  "+name+" ", "| runlevel ", "| "+name+" ",
		"$(runlevel ", "$("+name+" ").Replace(command.Example)
	for _, child := range command.Commands() {
		nameExamples(child, name)
	}
}

// versionFlag prints the version. Cobra's own flag needs a template for that, and templates make the linker keep all
// methods of all types.
const versionFlag = "version"

func printHelpOrVersion(root *cobra.Command, args []string) error {
	if isWanted, err := root.Flags().GetBool(versionFlag); err != nil || !isWanted {
		return core.NeedsVerb(root, args)
	}
	_, err := fmt.Fprintln(root.OutOrStdout(), "runlevel", core.ReadVersion().Version)
	return err
}

// refuseEmptyFlags returns an error for a text flag with an empty value, such as an unset variable of a shell. If an
// empty flag counted as not set, --context "" would mean another cluster, and --name "" another release.
func refuseEmptyFlags(flags *pflag.FlagSet) error {
	var err error
	flags.Visit(func(flag *pflag.Flag) {
		if err == nil && flag.Value.Type() == "string" && flag.Value.String() == "" {
			err = core.Misusef("--%s is empty: leave it out, or give it a value", flag.Name)
		}
	})
	return err
}

// addVerbosity adds -v, the one logging flag. Logs go to standard error.
func addVerbosity(root *cobra.Command) {
	flags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(flags)
	_ = flags.Set("logtostderr", "true")
	_ = flags.Set("stderrthreshold", "FATAL") // else logs that a live view prints would be printed twice
	_ = flags.Set("one_output", "true")       // one line per log, not one per severity
	verbosity := flags.Lookup("v")
	root.PersistentFlags().VarPF(verbosityFlag{verbosity.Value}, "verbosity", "v",
		"how much to log to standard error: 1 for each step, 6 also for the URL and duration of each request, 7 "+
			"also for its headers, without credentials; bodies, which may have Secrets in them, are never logged")
}

// maxVerbosity is the highest level at which client-go logs no bodies of requests and responses.
const maxVerbosity = 7

// A verbosityFlag is klog's, bounded by maxVerbosity.
type verbosityFlag struct{ flag.Value }

func (verbosityFlag) Type() string { return "level" }

func (v verbosityFlag) Set(text string) error {
	if level, err := strconv.ParseInt(text, 10, 32); err == nil && level > maxVerbosity {
		text = strconv.Itoa(maxVerbosity)
	}
	return v.Value.Set(text)
}

// fileFlags are the flags whose value is a file or a folder.
var fileFlags = []string{"audit-policy", "baseline", "config", "crds", "export", "extension-ca", "filename", "from",
	"images-from", "kubeconfig", "load-image", "output-dir", "ready", "updating-from", "with"}

// completeFlags turns off the completion with files, except for fileFlags.
func completeFlags(command *cobra.Command) {
	for _, child := range command.Commands() {
		completeFlags(child)
	}
	register := func(flag *pflag.Flag) {
		if !slices.Contains(fileFlags, flag.Name) {
			// An error means that the flag has a completion.
			_ = command.RegisterFlagCompletionFunc(flag.Name, cobra.NoFileCompletions)
		}
	}
	command.Flags().VisitAll(register)
	command.PersistentFlags().VisitAll(register)
}

// withLogger adds a logger to a context. The logger drops errors after the end of the context: Ctrl-C makes all open
// requests fail.
func withLogger(ctx context.Context, log klog.Logger) context.Context {
	const wrapper = 1 // skips the frame of interruptibleSink
	return klog.NewContext(ctx, logr.New(interruptibleSink{log.WithCallDepth(wrapper).GetSink(), ctx.Done()}))
}

// An interruptibleSink is a log that drops errors after done is closed.
type interruptibleSink struct {
	logr.LogSink
	done <-chan struct{}
}

func (i interruptibleSink) Error(err error, message string, keysAndValues ...any) {
	select {
	case <-i.done:
	default:
		i.LogSink.Error(err, message, keysAndValues...)
	}
}

func (i interruptibleSink) Info(level int, message string, keysAndValues ...any) {
	i.LogSink.Info(level, message, keysAndValues...)
}

func (i interruptibleSink) WithValues(keysAndValues ...any) logr.LogSink {
	return interruptibleSink{i.LogSink.WithValues(keysAndValues...), i.done}
}

func (i interruptibleSink) WithName(name string) logr.LogSink {
	return interruptibleSink{i.LogSink.WithName(name), i.done}
}
