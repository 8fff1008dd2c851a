package lint

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/review/lint"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// baselineFlags are the flags of the file of accepted findings.
type baselineFlags struct {
	file  string
	write bool
}

// addBaselineFlags adds the flags to a command. The shell completes the file.
func addBaselineFlags(command *cobra.Command, f *baselineFlags) {
	command.Flags().StringVar(&f.file, "baseline", "",
		"the file of accepted findings: only new findings count")
	command.Flags().BoolVar(&f.write, "write-baseline", false,
		"write the current findings to that file instead of printing a report")
}

// read reads the baseline. With --write-baseline, it only checks that the file may be written, and
// returns none: the new baseline has to include the findings of the old one.
func (f baselineFlags) read(outputs core.Outputs) (*lint.Baseline, error) {
	switch {
	case f.write && f.file == "":
		return nil, core.Misusef(
			"--write-baseline needs --baseline: name the file to write, as in --baseline .runlevel-baseline",
		)
	case f.write && (outputs.Printed != core.Text || len(outputs.Files) > 0):
		return nil, core.Misusef("--write-baseline prints no report: leave out -o")
	case f.file == "":
		return nil, nil
	}
	content, err := f.content()
	if err != nil {
		return nil, core.Misuse(err)
	}
	if f.write && len(content) == 0 {
		return nil, nil
	}
	baseline, err := lint.ParseBaseline(f.file, content)
	if err != nil && f.write {
		err = fmt.Errorf("%w; it is not overwritten: remove it first", err)
	}
	if err != nil {
		return nil, core.Misuse(err)
	}
	if f.write {
		return nil, nil
	}
	return baseline, nil
}

// content returns the content of the file. A file to be written may be missing.
func (f baselineFlags) content() ([]byte, error) {
	info, err := os.Stat(f.file)
	switch {
	case err == nil && info.IsDir():
		return nil, fmt.Errorf("--baseline %s: this is a folder: name a file", f.file)
	case err == nil && f.write && !info.Mode().IsRegular(): // it would replace /dev/null
		return nil, fmt.Errorf("--baseline %s: this file cannot be replaced: name another", f.file)
	}
	content, err := os.ReadFile(f.file)
	if errors.Is(err, fs.ErrNotExist) {
		if f.write {
			return nil, nil
		}
		err = fmt.Errorf("--baseline %s: file does not exist: create it with --write-baseline", f.file)
	}
	return content, err
}

// save writes the baseline with the findings, and prints their number.
func (f baselineFlags) save(result *lint.Result, out io.Writer) error {
	var text bytes.Buffer
	err := lint.WriteBaseline(&text, result.Findings)
	if err == nil {
		err = core.ReplaceFile(f.file, text.Bytes())
	}
	if err != nil {
		return fmt.Errorf("--write-baseline: %w", err)
	}
	report := newReport(result, lintPaths{}, nil)
	_, err = fmt.Fprintf(out, "%s accepts %s:\n%s", f.file, printable.Count(len(result.Findings), "finding"),
		report.summary())
	return err
}
