// Command bench measures Runlevel beside kubectl, helm and kapp, and all of them against
// a floor: a bare loop of the same server-side applies.
//
// They take turns on one sandbox, each with a payload of its own that is like those of
// the others, and each as a process from start to exit, as an ordinary user. What is
// compared is said in docs/performance.md, into which --write puts the tables. "make
// bench" builds the programs, which are expected beside this one, and runs it. Start with
// contest.go; contestant.go says how each tool is called.
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
	if err := bench(ctx, os.Args[1:]); errors.Is(err, flag.ErrHelp) {
		os.Exit(2)
	} else if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func bench(ctx context.Context, arguments []string) error {
	if len(arguments) > 0 && arguments[0] == launched {
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
	return errors.Join(err, tell(o, results, err == nil))
}

// measure lets the contestants run. What they had on disk is gone when it returns: a process that reads
// the tables may stop reading, which ends the program at once.
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
	c := contest{options: o, programs: programs, folder: folder, progress: os.Stderr}
	err = c.run(ctx)
	if ctx.Err() != nil {
		err = errors.New("interrupted")
	}
	return c.results, err
}

// tell prints what was measured, and writes it where it was asked to if it is whole.
func tell(o options, results []result, whole bool) error {
	print := printText
	if o.json {
		print = printJSON
	}
	if err := print(os.Stdout, results); err != nil || o.write == "" || !whole {
		return err
	}
	return writeInto(o.write, func(w io.Writer) error { return printMarkdown(w, results) })
}

// findPrograms says where each program is: beside this one, and Runlevel where it was
// said to be.
func findPrograms(o options) (map[string]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	programs := map[string]string{launched: self}
	for _, who := range o.tools {
		programs[who.name] = filepath.Join(filepath.Dir(self), who.name)
	}
	for _, variant := range []string{ours + "-no-wait", floor + "-wait"} {
		delete(programs, variant)
	}
	if programs[ours], err = filepath.Abs(o.runlevel); err != nil {
		return nil, err
	}
	for name, file := range programs {
		if _, err := os.Stat(file); err != nil {
			return nil, fmt.Errorf("%s is not at %s: \"make bench\" builds it", name, file)
		}
	}
	return programs, nil
}

// install copies programs, as an install does. The kernel has what a linker has
// just written in larger pieces than a copy, and counts all of a piece as the memory of the
// process that touches it: 9 MB more for a program of 98.
func install(programs map[string]string, below string) (map[string]string, error) {
	copies := map[string]string{}
	for name, file := range programs {
		copies[name] = filepath.Join(below, filepath.Base(file))
		if err := copyProgram(file, copies[name]); err != nil {
			return nil, err
		}
	}
	return copies, nil
}

func copyProgram(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o700)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
