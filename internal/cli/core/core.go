// Package core is the common base of the verbs of the command line: standard streams, exit codes and
// errors; formats of output; and the flags for a release, a cluster, and changes to the cluster.
//
// It defines no verbs, and depends on none. A verb adds the flags to its command, and calls their methods: ReleaseFlags
// reads a release, ClusterFlags connects to a cluster, Output prints a result.
//
// Start with AddReleaseFlags, AddClusterFlags and AddOutput.
package core

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

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

// A misuseError is an error in the command line, or in the input.
type misuseError struct{ error }

// Unwrap returns the error itself.
func (m misuseError) Unwrap() error { return m.error }

// Misuse marks an error as an error in the command line, or in its input.
func Misuse(err error) error { return misuseError{err} }

// Misusef returns an error in the command line, or in the input.
func Misusef(format string, values ...any) error { return misuseError{fmt.Errorf(format, values...)} }

// An ExitStatus ends the command with the code of another program, which has
// printed its own error.
type ExitStatus int

// Error returns the code: it is not printed.
func (e ExitStatus) Error() string { return "exit status " + strconv.Itoa(int(e)) }

// FailIf returns an error without a message if something is wrong. The exit code is then that of a failure.
func FailIf(isWrong bool) error {
	if isWrong {
		return ExitStatus(exitFailed)
	}
	return nil
}

// NeedsVerb runs a command that only has subcommands: called alone it prints
// its help, and an unknown subcommand is misuse.
func NeedsVerb(command *cobra.Command, _ []string) error { return command.Help() }

// ErrorText returns the text of an error for printing. An error of a context that was canceled, without words about
// it, is an interruption.
func ErrorText(err error) string {
	switch {
	case err == context.Canceled:
		return reason.ErrInterrupted.Error()
	case errors.Is(err, context.Canceled) && !errors.Is(err, reason.ErrInterrupted):
		return reason.ErrInterrupted.Error() + ": " + err.Error()
	default:
		return err.Error()
	}
}

// ErrorPrefix begins each printed error.
const ErrorPrefix = "runlevel: "

// ExitCode prints an error, if it has a message, and returns its code.
func ExitCode(err error, stderr io.Writer) int {
	if err == nil {
		return exitOK
	}
	if status, ok := err.(ExitStatus); ok { // not joined with another error
		return int(status)
	}
	fmt.Fprintln(stderr, ErrorPrefix+ErrorText(err))
	var status ExitStatus
	var wrongCall misuseError
	switch {
	case errors.As(err, &status):
		return int(status)
	case errors.As(err, &wrongCall), errors.Is(err, sandbox.ErrOptions):
		return exitMisuse
	default:
		return exitFailed
	}
}

// CanAsk reports whether a user sees standard error and can answer.
func (s Streams) CanAsk() bool { return isTerminal(s.In) && isTerminal(s.Err) }

func isTerminal(stream any) bool {
	file, isFile := stream.(*os.File)
	return isFile && term.IsTerminal(int(file.Fd()))
}

// Ask asks a question on standard error, and reports whether the answer is yes. Anything but yes is no.
func (s Streams) Ask(ctx context.Context, question string) (bool, error) {
	fmt.Fprintf(s.Err, "%s [y/N] ", question)
	answers := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(s.In).ReadString('\n')
		answers <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case <-ctx.Done():
		return false, context.Cause(ctx)
	case answer := <-answers:
		return answer == "y" || answer == "yes", nil
	}
}

// AskPassword returns the password in an environment variable, or asks for it on the terminal, without showing it.
func (s Streams) AskPassword(ctx context.Context, variable, question string) ([]byte, error) {
	if password, isSet := os.LookupEnv(variable); isSet {
		return []byte(password), nil
	}
	if !s.CanAsk() {
		return nil, Misusef("needs a password: set %s", variable)
	}
	terminal := int(s.In.(*os.File).Fd())
	before, err := term.GetState(terminal)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(s.Err, "Password of %s: ", question)
	defer fmt.Fprintln(s.Err)
	type answer struct {
		password []byte
		err      error
	}
	answers := make(chan answer, 1)
	go func() {
		password, err := term.ReadPassword(terminal)
		answers <- answer{password, err}
	}()
	select {
	case <-ctx.Done():
		_ = term.Restore(terminal, before) // the read never ends
		return nil, context.Cause(ctx)
	case got := <-answers:
		return got.password, got.err
	}
}
