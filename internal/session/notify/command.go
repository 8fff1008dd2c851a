package notify

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"time"
)

// pipesTimeout is how long output is read after a command has ended, or was killed: a program that it has started may
// still have it open.
const pipesTimeout = time.Second

// runCommand runs a command line in the shell, with a document on its standard input. Its output goes to standard
// error: standard output has the result of the apply.
func runCommand(ctx context.Context, line string, document []byte) error {
	command := exec.CommandContext(ctx, "sh", "-c", line)
	command.Stdin, command.Stdout, command.Stderr = bytes.NewReader(append(document, '\n')), os.Stderr, os.Stderr
	command.WaitDelay = pipesTimeout
	withGroup(command)
	err := command.Run()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
