package core

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/record/files"
	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/internal/release/applied"
	"github.com/runlevel/runlevel/internal/release/loader"
	"github.com/runlevel/runlevel/internal/session"
	"github.com/runlevel/runlevel/internal/source"
	"github.com/runlevel/runlevel/pkg/payload"
)

// OpenApplied opens a version of a release from its copy in the cluster of the flags.
func (f *ClusterFlags) OpenApplied(ctx context.Context, name, version string) (*source.Release, error) {
	c, err := f.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return applied.Versions{Cluster: c, Namespace: f.Namespace}.OpenApplied(ctx, name, version)
}

// ReadApplied returns the manifests that were applied last, by the record of their release; none if they can't be read.
func (f *ClusterFlags) ReadApplied(ctx context.Context, namespace string, known *record.Record) []*payload.Manifest {
	c, err := f.Connect(ctx)
	if err != nil {
		return nil
	}
	read, err := applied.Versions{Cluster: c, Namespace: namespace}.Read(ctx, known.Release, "", loader.Options{})
	if err != nil {
		return nil
	}
	return read.Manifests
}

// NameOrSource returns the SOURCE of an argument, which is the name of a release or a SOURCE. A name means the last
// applied version. If there is also a file or folder of that name, the name means the release if the release has a
// record. NameOrSource prints this choice.
func (f *ClusterFlags) NameOrSource(ctx context.Context, argument string, progress io.Writer) (string, error) {
	if !source.CanBeName(argument) {
		return argument, nil
	}
	if _, err := os.Stat(argument); errors.Is(err, fs.ErrNotExist) {
		return argument + "@", nil
	}
	c, err := f.Connect(ctx)
	if err != nil {
		return "", err
	}
	known, _, err := record.NewStore(c.Client, f.Namespace, argument).Load(ctx)
	switch {
	case err != nil:
		return "", fmt.Errorf("cannot find out whether %[1]s is a release: write ./%[1]s for the file or folder: %[2]w",
			argument, err)
	case known.Newest() == nil:
		return argument, nil
	}
	fmt.Fprintf(progress, "%s is the release on the cluster; write ./%[1]s for the file or folder\n", argument)
	return argument + "@", nil
}

// AppliedRef returns the SOURCE of a version of a release. Revision 0 means the last one.
func AppliedRef(name string, revision int) (string, error) {
	if err := lock.CheckRelease(name); err != nil {
		return "", Misuse(err)
	}
	switch {
	case revision < 0:
		return "", Misusef("--revision: %d is invalid: revisions are counted from 1", revision)
	case revision == 0:
		return name + "@", nil
	default:
		return fmt.Sprintf("%s@%d", name, revision), nil
	}
}

// FileFlags are the flags on the files of the versions that are applied.
type FileFlags struct {
	keep string
	Max  int // number of versions whose files are kept

	flags *pflag.FlagSet
}

// The values of --keep-files.
const (
	keepFull   = "full"
	keepDigest = "digest"
	keepNone   = "none"
)

// AddFileFlags adds the flags on the files of the versions that are applied.
func AddFileFlags(command *cobra.Command, f *FileFlags) {
	f.keep, f.flags = keepFull, command.Flags()
	AddChoice(command, &f.keep, "keep-files",
		"what to store on the cluster, to read a version as NAME@REVISION later: full (all files), "+
			"digest (the image reference; SOURCE must be an image by digest) or none", keepFull, keepDigest, keepNone)
	command.Flags().IntVar(&f.Max, "history-max", session.DefaultHistoryMax,
		"number of versions whose files are kept; those of the current and the previous version always are")
}

// Check refuses values that make no sense.
func (f *FileFlags) Check(ref string) error {
	switch {
	case f.Max < 1:
		return Misusef("--history-max: %d is invalid: it must be 1 or greater", f.Max)
	case f.Max > maxKept:
		return Misusef("--history-max: %d is too many: %d is the limit", f.Max, maxKept)
	case f.keep == keepDigest && !source.IsByDigest(ref):
		return Misusef("--keep-files=digest: SOURCE is not an image by digest, " +
			"as in registry.example/shop@sha256:DIGEST")
	}
	return nil
}

// useSettings puts the settings of a release in the place of flags that are not set.
func (f *FileFlags) useSettings(opened *source.Release, progress io.Writer) error {
	keep, most, warning, err := loader.KeptBy(opened)
	if warning != "" {
		Warn(progress, []string{warning})
	}
	if keep != "" && !f.flags.Changed("keep-files") {
		f.keep = keep
	}
	if most != 0 && !f.flags.Changed("history-max") {
		f.Max = most
	}
	return err
}

// maxKept bounds --history-max: a history has as many entries.
const maxKept = 100

// pack packs the files of a release to be kept; nil if they are not to be.
func (f FileFlags) pack(opened *source.Release, ref string, read *payload.Payload) (*files.Packed, error) {
	if f.keep == keepNone {
		return nil, nil
	}
	values, err := loader.Values(read)
	if err != nil {
		return nil, err
	}
	if f.keep == keepDigest {
		return files.PackImage(ref, values)
	}
	return files.Pack(opened.FS, read.FileNames(), values)
}

// Options returns the options of an apply.
func (f FileFlags) Options(packed *files.Packed) session.FileOptions {
	options := session.FileOptions{Packed: packed, HistoryMax: f.Max}
	if packed == nil {
		options.NotKept = "it was applied with --keep-files=" + f.keep
	}
	return options
}
