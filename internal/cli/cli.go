// Package cli is the runlevel command: its verbs, flags, help and output.
//
// It reads flags, calls the package that does the work, and prints what comes
// back; it decides nothing by itself. What it prints for people and machines
// goes to standard output; progress, logs and errors go to standard error.
//
// Run is the call to start from; each verb has a file of its own.
package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"github.com/runlevel/runlevel/internal/sandbox"
)

// The exit codes, the same for every verb.
const (
	exitOK     = 0
	exitFailed = 1 // findings, a difference asked for, a failed apply
	exitMisuse = 2 // wrong flags or arguments, or input that can't be read
)

// Streams are the three files a command talks through.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// Run runs one command line and returns the exit code.
func Run(ctx context.Context, args []string, streams Streams) int {
	root := newRoot(streams)
	root.SetArgs(args)
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.Err)
	err := root.ExecuteContext(logging(ctx, klog.Background()))
	klog.Flush()
	return exitCode(err, streams.Err)
}

func newRoot(streams Streams) *cobra.Command {
	root := &cobra.Command{
		Use:   "runlevel",
		Short: "Apply release payloads to any Kubernetes cluster",
		Long: `Runlevel applies a release payload, a folder of numbered Kubernetes manifests,
to any cluster, the way OpenShift's cluster-version operator does.

Exit codes: 0 when all is well, 1 for findings or a failure, 2 for misuse.`,
		Example: `  # What does an update do, and what does it leave behind?
  runlevel plan ./old ./new

  # A control plane to try things on
  runlevel sandbox up --detach
  kubectl --kubeconfig "$(runlevel sandbox kubeconfig)" get nodes
  runlevel sandbox down`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE:          needsVerb,
		PersistentPreRunE: func(command *cobra.Command, _ []string) error {
			return checkNotEmptyFlags(command.Flags())
		},
	}
	root.SetFlagErrorFunc(wrongFlag)
	addVerbosity(root)
	root.AddCommand(newApply(streams), newDeletes(streams), newDiff(streams), newExplain(streams), newGate(streams), newGraph(streams), newHistory(streams), newInspect(streams), newInstall(streams), newLint(streams), newMachines(streams), newPlan(streams), newRender(streams), newSandbox(streams), newStatus(streams), newUninstall(streams), newVersion(streams), newWhy(streams))
	root.InitDefaultCompletionCmd()
	checkArgs(root)
	checkDefaults(root)
	completeFlags(root)
	return root
}

// needsVerb is what a command does that only has others below it: called alone
// it shows its help, and a word that is none of them is misuse.
func needsVerb(command *cobra.Command, _ []string) error { return command.Help() }

// checkNotEmptyFlags refuses text flags that are set to nothing, as by an unset variable of a shell:
// taken for flags that are not set, --context "" would mean another cluster, and --name "" another
// release.
func checkNotEmptyFlags(flags *pflag.FlagSet) error {
	var err error
	flags.Visit(func(flag *pflag.Flag) {
		if err == nil && flag.Value.Type() == "string" && flag.Value.String() == "" {
			err = misuse{fmt.Errorf("--%s is empty: leave it out, or give it a value", flag.Name)}
		}
	})
	return err
}

// addVerbosity adds -v, the one logging flag. Logs go to standard error.
func addVerbosity(root *cobra.Command) {
	flags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(flags)
	_ = flags.Set("logtostderr", "true")
	_ = flags.Set("stderrthreshold", "FATAL") // where a live view takes logs in, they are not to be beside it
	_ = flags.Set("one_output", "true")       // nor in it four times
	verbosity := flags.Lookup("v")
	root.PersistentFlags().VarPF(verbosityFlag{verbosity.Value}, "verbosity", "v", "how much to log to standard error: 1 for what is done, 6 also for the URL and duration of each request, 7 also for its headers, without credentials; bodies, which may have Secrets in them, are never logged")
}

// maxVerbosity is the highest level at which client-go logs no bodies of requests and answers.
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

// A misuse is an error in how the command was called, or in what it was to read.
type misuse struct{ error }

func (m misuse) Unwrap() error { return m.error }

// An exitStatus ends the command with the code of another program, which has
// said for itself what was wrong.
type exitStatus int

func (e exitStatus) Error() string { return "exit status " + strconv.Itoa(int(e)) }

// failIf returns an error without a message, which makes the exit code that of a failure, if something is wrong.
func failIf(isWrong bool) error {
	if isWrong {
		return exitStatus(exitFailed)
	}
	return nil
}

// exitCode prints an error, if there is one to print, and returns its code.
func exitCode(err error, stderr io.Writer) int {
	if err == nil {
		return exitOK
	}
	if status, ok := err.(exitStatus); ok { // and nothing else went wrong
		return int(status)
	}
	fmt.Fprintln(stderr, "runlevel:", inWords(err))
	var status exitStatus
	var wrongCall misuse
	switch {
	case errors.As(err, &status):
		return int(status)
	case errors.As(err, &wrongCall), errors.Is(err, sandbox.ErrOptions):
		return exitMisuse
	default:
		return exitFailed
	}
}

// interruptions are the words in which the end of a context is told that a signal ends.
var interruptions = strings.NewReplacer(
	context.Canceled.Error(), "interrupted", "interrupt signal received", "interrupted", "terminated signal received", "interrupted",
)

// inWords is an error as it is told to people: the end of a context is Ctrl-C.
func inWords(err error) string { return withFlags(interruptions.Replace(err.Error())) }

// flags are what sets the options that messages of packages speak of.
var flags = strings.NewReplacer("or drop unknown fields", "or drop unknown fields with --unknown-fields=drop")

// withFlags returns a message with the flags that set the options which it speaks of.
func withFlags(message string) string { return flags.Replace(message) }

// fileFlags are the flags of which a value is a file or a folder.
var fileFlags = []string{"audit-policy", "baseline", "config", "crds", "extension-ca", "filename", "images-from", "kubeconfig", "output-dir", "updating-from"}

// completeFlags has no flag completed with files that is for something else.
func completeFlags(command *cobra.Command) {
	for _, child := range command.Commands() {
		completeFlags(child)
	}
	register := func(flag *pflag.Flag) {
		if !slices.Contains(fileFlags, flag.Name) {
			_ = command.RegisterFlagCompletionFunc(flag.Name, cobra.NoFileCompletions) // unless it is completed with something
		}
	}
	command.Flags().VisitAll(register)
	command.PersistentFlags().VisitAll(register)
}

// completeOne completes one argument with fixed words.
func completeOne(words []string) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return words, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeList completes the words of a list, also behind a comma.
func completeList(words []string) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
		before := toComplete[:strings.LastIndex(toComplete, ",")+1]
		var found []cobra.Completion
		for _, word := range words {
			found = append(found, before+word)
		}
		return found, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeFiles completes the value of a flag with what is on disk, whatever arguments there are.
func completeFiles(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveDefault
}

// completePaths completes up to some arguments with what is on disk.
func completePaths(most int, what cobra.ShellCompDirective) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) >= most {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return nil, what
	}
}

// completeSource completes a SOURCE on disk.
var completeSource = completePaths(1, cobra.ShellCompDirectiveDefault)
