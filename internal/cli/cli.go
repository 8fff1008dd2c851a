// Package cli is the runlevel command: its verbs, flags, help and output.
//
// It reads flags, calls the package that does the work, and prints the result;
// it decides nothing by itself. Results in text, JSON and YAML go to standard
// output; progress, logs and errors go to standard error.
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
	"github.com/runlevel/runlevel/internal/text/reason"
)

// The exit codes, the same for every verb.
const (
	exitOK     = 0
	exitFailed = 1 // findings, a difference with --exit-code, a failed apply
	exitMisuse = 2 // wrong flags or arguments, or input that can't be read
)

// Streams are the standard input, output and error of a command.
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
	err := root.ExecuteContext(withLogger(ctx, klog.Background()))
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

// needsVerb runs a command that only has subcommands: called alone it prints
// its help, and an unknown subcommand is misuse.
func needsVerb(command *cobra.Command, _ []string) error { return command.Help() }

// checkNotEmptyFlags refuses text flags with an empty value, as an unset variable of a shell gives:
// if they counted as not set, --context "" would mean another cluster, and --name "" another
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
	_ = flags.Set("stderrthreshold", "FATAL") // else logs that a live view prints would be printed twice
	_ = flags.Set("one_output", "true")       // one line per log, not one per severity
	verbosity := flags.Lookup("v")
	root.PersistentFlags().VarPF(verbosityFlag{verbosity.Value}, "verbosity", "v", "how much to log to standard error: 1 for what is done, 6 also for the URL and duration of each request, 7 also for its headers, without credentials; bodies, which may have Secrets in them, are never logged")
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

// A misuse is an error in the command line, or in the input.
type misuse struct{ error }

func (m misuse) Unwrap() error { return m.error }

// An exitStatus ends the command with the code of another program, which has
// printed its own error.
type exitStatus int

func (e exitStatus) Error() string { return "exit status " + strconv.Itoa(int(e)) }

// failIf returns an error without a message if something is wrong. The exit code is then that of a failure.
func failIf(isWrong bool) error {
	if isWrong {
		return exitStatus(exitFailed)
	}
	return nil
}

// exitCode prints an error, if it has a message, and returns its code.
func exitCode(err error, stderr io.Writer) int {
	if err == nil {
		return exitOK
	}
	if status, ok := err.(exitStatus); ok { // not joined with another error
		return int(status)
	}
	fmt.Fprintln(stderr, "runlevel:", errorText(err))
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

// errorText returns the text of an error that is printed: with the flag that sets the option that the error
// suggests, and with "interrupted" for the end of the context.
func errorText(err error) string {
	text := withFlag(reason.OptionOf(err), err.Error())
	if interrupt := interruptOf(err); interrupt != nil {
		text = strings.ReplaceAll(text, interrupt.Error(), "interrupted")
	}
	return text
}

// interruptOf returns the innermost cause of an error if that is the end of a context, by a signal for example.
func interruptOf(err error) error {
	if !errors.Is(err, context.Canceled) {
		return nil
	}
	switch outer := err.(type) {
	case interface{ Unwrap() error }:
		return interruptOf(outer.Unwrap())
	case interface{ Unwrap() []error }:
		for _, cause := range outer.Unwrap() {
			if found := interruptOf(cause); found != nil {
				return found
			}
		}
	}
	return err
}

// flagsOfOptions are the flags that set the options that errors suggest.
var flagsOfOptions = map[reason.Option]string{reason.DropUnknownFields: "--unknown-fields=drop"}

// withFlag adds to a message the flag that sets the option that it suggests.
func withFlag(option reason.Option, message string) string {
	if option == "" {
		return message
	}
	return strings.ReplaceAll(message, string(option), string(option)+" with "+flagsOfOptions[option])
}

// fileFlags are the flags whose value is a file or a folder.
var fileFlags = []string{"audit-policy", "baseline", "config", "crds", "extension-ca", "filename", "images-from", "kubeconfig", "output-dir", "updating-from"}

// completeFlags turns off the completion with files, except for fileFlags.
func completeFlags(command *cobra.Command) {
	for _, child := range command.Commands() {
		completeFlags(child)
	}
	register := func(flag *pflag.Flag) {
		if !slices.Contains(fileFlags, flag.Name) {
			_ = command.RegisterFlagCompletionFunc(flag.Name, cobra.NoFileCompletions) // fails if the flag has a completion
		}
	}
	command.Flags().VisitAll(register)
	command.PersistentFlags().VisitAll(register)
}

// completeOne completes a single argument with fixed words.
func completeOne(words []string) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return words, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeList completes the words of a list, also after a comma.
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

// completeFiles completes the value of a flag with files, whatever the arguments are.
func completeFiles(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveDefault
}

// completePaths completes up to most arguments with files or folders.
func completePaths(most int, what cobra.ShellCompDirective) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) >= most {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return nil, what
	}
}

// completeSource completes a SOURCE with files.
var completeSource = completePaths(1, cobra.ShellCompDirectiveDefault)
