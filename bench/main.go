// Command bench measures how Runlevel, kubectl, helm and kapp apply a release, as ratios to a floor: a bare loop of the
// same server-side applies.
//
// The tools take turns on a sandbox, each with a payload that differs only in its name, and each as a process of an
// ordinary user, from start to exit. docs/performance.md describes the comparison and has the tables, which --write
// renews. "make bench" builds the programs beside this one, and runs it. Start with rounds.go; tools.go has the command
// lines.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); errors.Is(err, flag.ErrHelp) {
		os.Exit(2)
	} else if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, arguments []string) error {
	if len(arguments) > 0 && arguments[0] == launcher {
		return launch(ctx, arguments[1:])
	}
	o, err := parse(arguments)
	if err != nil {
		return err
	}
	results, err := measure(ctx, o)
	if len(results) == 0 {
		return err
	}
	return errors.Join(err, report(o, results, err == nil))
}

// measure runs the benchmark. It removes the files before it returns, since the end of a pipe ends the program while
// the tables are printed.
func measure(ctx context.Context, o options) ([]result, error) {
	built, err := findPrograms(o)
	if err != nil {
		return nil, err
	}
	folder, err := os.MkdirTemp("", "runlevel-bench-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	programs, err := install(built, folder)
	if err != nil {
		return nil, err
	}
	b := benchmark{options: o, programs: programs, folder: folder, progress: os.Stderr}
	err = b.run(ctx)
	if ctx.Err() != nil {
		err = errors.New("interrupted")
	}
	return b.results, err
}

// report prints the results, and writes the tables into the document of --write if all runs are complete.
func report(o options, results []result, complete bool) error {
	print := printText
	if o.json {
		print = printJSON
	}
	if err := print(os.Stdout, results); err != nil || o.write == "" || !complete {
		return err
	}
	return writeInto(o.write, func(w io.Writer) error { return printMarkdown(w, results) })
}

// findPrograms returns the file of each program: beside this one, and Runlevel's of --runlevel.
func findPrograms(o options) (map[string]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	programs := map[string]string{launcher: self}
	for _, t := range o.tools {
		programs[t.program] = filepath.Join(filepath.Dir(self), t.program)
	}
	if programs["runlevel"], err = filepath.Abs(o.runlevel); err != nil {
		return nil, err
	}
	for name, file := range programs {
		if _, err := os.Stat(file); err != nil {
			return nil, fmt.Errorf("%s is not at %s: \"make bench\" builds it", name, file)
		}
	}
	return programs, nil
}

// install copies programs. The page cache has the output of a linker in larger pieces than a copy, and a whole piece
// counts as the memory of the process that touches it: 9 MB more for a program of 98 MB.
func install(programs map[string]string, folder string) (map[string]string, error) {
	copies := map[string]string{}
	for name, file := range programs {
		copies[name] = filepath.Join(folder, filepath.Base(file))
		if err := copyProgram(file, copies[name]); err != nil {
			return nil, err
		}
	}
	return copies, nil
}

func copyProgram(source, target string) (err error) {
	input, err := os.Open(source)
	if err != nil {
		return err
	}
	defer func() { _ = input.Close() }()
	out, err := os.OpenFile(target, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o700)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, input)
	return errors.Join(err, out.Close())
}
