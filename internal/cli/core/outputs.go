package core

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// Outputs are the formats of one result: one for standard output, and others for files.
type Outputs struct {
	Printed   Output // the first allowed format, if no other one is chosen
	Files     []OutputFile
	allowed   []Output
	isPrinted bool // Printed was chosen
}

// An OutputFile is a file in a format.
type OutputFile struct {
	Format Output
	Path   string
}

// AddOutputs adds -o to a command, which may be repeated. The first format is the default.
func AddOutputs(command *cobra.Command, o *Outputs, ways ...Output) {
	*o = Outputs{Printed: ways[0], allowed: ways}
	last := len(ways) - 1
	command.Flags().VarP(o, "output", "o", fmt.Sprintf("how to print: %s or %s; as FORMAT=FILE, also write a file; "+
		"may be repeated", Join(ways[:last]), ways[last]))
	_ = command.RegisterFlagCompletionFunc("output", o.complete)
}

// complete completes formats, and files after "=".
func (o *Outputs) complete(_ *cobra.Command, _ []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
	format, path, isFile := strings.Cut(word, "=")
	if !isFile {
		return textsOf(o.allowed), cobra.ShellCompDirectiveNoFileComp
	}
	files, _ := filepath.Glob(path + "*")
	var found []cobra.Completion
	for _, file := range files {
		if info, err := os.Stat(file); err == nil && info.IsDir() {
			file += "/"
		}
		found = append(found, format+"="+file)
	}
	return found, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

func (o *Outputs) String() string { return string(o.Printed) }
func (o *Outputs) Type() string   { return "format" }

func (o *Outputs) Set(value string) error {
	name, path, isFile := strings.Cut(value, "=")
	format := Output(name)
	switch {
	case !slices.Contains(o.allowed, format):
		return fmt.Errorf("use one of %s", Join(o.allowed))
	case isFile && path == "":
		return errors.New("name a file after =")
	case isFile && path == "-":
		return fmt.Errorf("without =FILE, a format goes to standard output: write %s", name)
	case isFile:
		path = filepath.Clean(path)
		if slices.ContainsFunc(o.Files, func(f OutputFile) bool { return f.Path == path }) {
			return fmt.Errorf("%s is the file of another format", path)
		}
		o.Files = append(o.Files, OutputFile{format, path})
	case o.isPrinted && format != o.Printed:
		return fmt.Errorf("%s goes to standard output: write this format to a file, as in %s=FILE", o.Printed, format)
	default:
		o.Printed, o.isPrinted = format, true
	}
	return nil
}

// Check returns an error if a file can't be written, for commands that take a while.
func (o *Outputs) Check() error {
	for _, file := range o.Files {
		if err := file.check(); err != nil {
			return Misusef("--output %s=%s: %w", file.Format, file.Path, err)
		}
	}
	return nil
}

func (f OutputFile) check() error {
	info, err := os.Stat(f.Path)
	if err == nil && info.IsDir() {
		return errors.New("it is a folder: name a file")
	}
	if err == nil && !info.Mode().IsRegular() {
		return nil
	}
	probe, err := f.create()
	if err != nil {
		return err
	}
	return errors.Join(probe.Close(), os.Remove(probe.Name()))
}

// create creates a file beside the file, which replaces it when it is complete.
func (f OutputFile) create() (*os.File, error) {
	folder, name := filepath.Split(f.Path)
	file, err := os.CreateTemp(filepath.Clean(folder), "."+name+"-*")
	if err != nil {
		return nil, fmt.Errorf("create a file in %s: %w", filepath.Clean(folder), errors.Unwrap(err))
	}
	return file, nil
}

// Write writes the result in all formats, with a function that writes it in one. A file is replaced when the new one
// is complete. An error does not keep the others from being written.
func (o *Outputs) Write(out io.Writer, write func(Output, io.Writer) error) error {
	failed := []error{write(o.Printed, out)}
	for _, file := range o.Files {
		var text bytes.Buffer
		err := write(file.Format, &text)
		if err == nil {
			err = ReplaceFile(file.Path, text.Bytes())
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("write %s: %w", file.Path, err))
		}
	}
	return errors.Join(failed...)
}

// ReplaceFile replaces the content of a file when the new one is complete, through links. Devices and pipes are written
// as they are.
func ReplaceFile(path string, text []byte) error {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return os.WriteFile(path, text, 0o644)
	}
	draft, err := OutputFile{Path: path}.create()
	if err != nil {
		return err
	}
	_, err = draft.Write(text)
	if err = errors.Join(err, draft.Chmod(0o644), draft.Close()); err == nil {
		err = os.Rename(draft.Name(), path)
	}
	if err != nil {
		err = errors.Join(err, os.Remove(draft.Name()))
	}
	return err
}
