package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// launched is the first argument of a launcher. The peak memory of a process begins with
// that of the one that started it, so it has to be one that has never been large: this
// program once more, which does nothing else.
const launched = "launch"

// launch runs a command line, and writes what it took into a file, which comes first.
func launch(ctx context.Context, arguments []string) error {
	if len(arguments) < 2 {
		return errors.New("launch: a file and a command are missing")
	}
	command := exec.CommandContext(ctx, arguments[1], arguments[2:]...)
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.WaitDelay = 10 * time.Second
	began := time.Now()
	if err := command.Run(); err != nil {
		return err
	}
	used := command.ProcessState
	c := cost{Seconds: time.Since(began).Seconds(), ClientCPU: (used.UserTime() + used.SystemTime()).Seconds()}
	if usage, ok := used.SysUsage().(*syscall.Rusage); ok {
		c.PeakMB = float64(usage.Maxrss) / 1000 // Linux says it in kB
	}
	content, err := json.Marshal(c)
	if err != nil {
		return err
	}
	return os.WriteFile(arguments[0], content, 0o600)
}

// add adds what a launcher has written.
func (c *cost) add(file string) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var more cost
	if err := json.Unmarshal(content, &more); err != nil {
		return err
	}
	c.Seconds += more.Seconds
	c.ClientCPU += more.ClientCPU
	c.PeakMB = max(c.PeakMB, more.PeakMB)
	return nil
}
