package updates

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/oci"
	"github.com/runlevel/runlevel/internal/release/signature/sigstore"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/internal/updates/graphdata"
)

const buildHelp = `Write the update graphs of a folder as static files, which any web server can serve:
OUT/CHANNEL/ARCHITECTURE.json, and OUT/index.json, their list. A cluster follows a channel
when spec.upstream of its ClusterVersion is the URL of such a file.

Each file is written beside the old one, and renamed; a file that does not change keeps its time,
so web servers and caches send it once. Files of deleted channels are deleted.

The operator of Runlevel computes from the file when its turn in a phase comes. Other clients only
see updates that are open for all: build again when a ramp has ended, for example every hour.

With --reports, updates that failed on too many clusters are halted: each adds a line to halts.yaml,
as if the service had added it. Ramps that wait for successes begin.

With --push, the files are also written to a registry, as "oras push" does: clusters follow a
channel when spec.upstream is oci://IMAGE.

With --sign-key, each file FILE has a signature FILE.sig, which "cosign verify-blob" verifies. A
password is read from COSIGN_PASSWORD, or asked on the terminal.

Exit codes: 0; 1 if a file can't be written or pushed; 2 if the folder, the
key or the image can't be used.

` + folderHelp

const (
	indexFile       = "index.json" // has the list of the files
	signatureSuffix = ".sig"
	deleted         = "deleted"
	graphsType      = "application/vnd.runlevel.update-graphs" // of the files in a registry
)

// A build is one run of the verb.
type build struct {
	out, keyFile, reports, image string // flags
	isInsecure                   bool
	format                       core.Output

	target oci.Location         // parsed image
	key    *sigstore.PrivateKey // nil if nothing is signed
	renews bool                 // the earlier files were signed by another key, or not at all
	report BuildReport
}

// BuildReport is the output of runlevel updates build, and without states the content of index.json.
type BuildReport struct {
	Key   string      `json:"key,omitempty"` // ID of the key that signed the files
	Files []BuiltFile `json:"files"`
	// the image with the files in a registry
	Pushed string `json:"pushed,omitempty"`
}

// A BuiltFile is the graph of a channel and an architecture.
type BuiltFile struct {
	Path         string `json:"path"`
	Channel      string `json:"channel"`
	Architecture string `json:"architecture"`
	Versions     int    `json:"versions"`
	State        string `json:"state,omitempty"` // written, unchanged or deleted
}

// newBuild returns the verb build.
func newBuild(streams core.Streams) *cobra.Command {
	b := build{report: BuildReport{Files: []BuiltFile{}}}
	command := &cobra.Command{
		Use:   "build DIR",
		Short: "Write update graphs as static files for any web server",
		Long:  buildHelp,
		Example: `  runlevel updates build ./graph-data --out /var/www/updates

  # Into a registry, for clusters with spec.upstream: oci://registry.example/updates:latest
  runlevel updates build ./graph-data --out ./updates --push registry.example/updates:latest

  # Signed, and verified
  runlevel updates build ./graph-data --out ./updates --sign-key cosign.key
  cosign verify-blob --key cosign.pub --signature updates/stable/amd64.json.sig updates/stable/amd64.json`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeFolder(nil),
		RunE: func(command *cobra.Command, args []string) error {
			if b.out == "" {
				return core.Misusef("pass --out with the folder to write to")
			}
			if b.image != "" {
				var err error
				if b.target, err = oci.ParseTarget(b.image, "latest", b.isInsecure); err != nil {
					return core.Misusef("--push %s: %w", b.image, err)
				}
				if !b.target.IsRegistry() {
					return core.Misusef("--push %s: name the registry, as in registry.example/updates:latest", b.image)
				}
			}
			if err := b.run(command.Context(), args[0], streams); err != nil {
				return err
			}
			if err := b.push(command.Context()); err != nil {
				return err
			}
			return b.format.PrintWhole(streams.Out, b.report, b.report.print)
		},
	}
	core.AddOutput(command, &b.format)
	command.Flags().StringVar(&b.out, "out", "", "the `folder` to write to")
	command.Flags().StringVar(&b.keyFile, "sign-key", "",
		"sign with the private key in this `file`, also as cosign encrypts it")
	command.Flags().StringVar(&b.reports, "reports", "",
		"judge the reports in this `file` of \"runlevel updates serve\", and halt updates in DIR")
	command.Flags().StringVar(&b.image, "push", "", "also write the files to this `image`, with a tag, in a registry")
	command.Flags().BoolVar(&b.isInsecure, "insecure", false, core.InsecureUsage)
	_ = command.RegisterFlagCompletionFunc("sign-key", core.CompleteFiles)
	_ = command.RegisterFlagCompletionFunc("reports", core.CompleteFiles)
	_ = command.MarkFlagDirname("out")
	return command
}

func (b *build) run(ctx context.Context, folder string, streams core.Streams) error {
	data, err := read(folder)
	if err != nil {
		return err
	}
	if findings := data.Lint(); len(findings) > 0 {
		core.Warn(streams.Err, []string{fmt.Sprintf("%s has %s: see \"runlevel updates lint %s\"", folder,
			printable.Count(len(findings), "finding"), folder)})
	}
	if err := judgeReports(data, folder, b.reports, streams); err != nil {
		return err
	}
	if b.keyFile != "" {
		text, err := os.ReadFile(b.keyFile)
		if err == nil {
			b.key, err = sigstore.ParsePrivateKey(text, func() ([]byte, error) {
				return streams.AskPassword(ctx, "COSIGN_PASSWORD", b.keyFile)
			})
		}
		if err != nil {
			return core.Misusef("--sign-key %s: %w", b.keyFile, err)
		}
		b.report.Key = b.key.Hint()
	}
	var earlier BuildReport
	text, err := os.ReadFile(filepath.Join(b.out, indexFile))
	if err == nil && json.Unmarshal(text, &earlier) != nil {
		return core.Misusef("--out %s: its %s is of another program: name another folder", b.out, indexFile)
	}
	b.renews = earlier.Key != b.report.Key
	for _, channel := range data.ChannelNames() {
		for _, arch := range data.Architectures() {
			if err := b.add(channel, arch, data.Graph(channel, arch, time.Now())); err != nil {
				return err
			}
		}
	}
	return b.finish(earlier.Files)
}

// add writes a graph.
func (b *build) add(channel, arch string, graph *graphdata.Graph) error {
	if len(graph.Nodes) == 0 {
		return nil
	}
	text, err := json.Marshal(graph)
	if err != nil {
		return err
	}
	file := BuiltFile{channel + "/" + arch + ".json", channel, arch, len(graph.Nodes), "unchanged"}
	isChanged, err := b.write(file.Path, text)
	if isChanged {
		file.State = "written"
	}
	b.report.Files = append(b.report.Files, file)
	return err
}

// write writes a file and its signature.
func (b *build) write(path string, text []byte) (isChanged bool, err error) {
	file := filepath.Join(b.out, filepath.FromSlash(path))
	if isChanged, err = writeFile(file, text); err != nil {
		return false, err
	}
	if b.key == nil {
		return isChanged, remove(file + signatureSuffix)
	}
	if _, err := os.Stat(file + signatureSuffix); err == nil && !isChanged && !b.renews {
		return false, nil // a signature is random, and would be another one
	}
	signature, err := b.key.Sign(text)
	if err == nil {
		_, err = writeFile(file+signatureSuffix, []byte(base64.StdEncoding.EncodeToString(signature)+"\n"))
	}
	return isChanged, err
}

// finish writes the index, and deletes earlier files that are not among the new ones.
func (b *build) finish(earlier []BuiltFile) error {
	index := BuildReport{Key: b.report.Key, Files: slices.Clone(b.report.Files)}
	kept := map[string]bool{}
	for i := range index.Files {
		index.Files[i].State = ""
		kept[index.Files[i].Path] = true
	}
	text, err := json.MarshalIndent(index, "", "  ")
	if err == nil {
		_, err = b.write(indexFile, append(text, '\n'))
	}
	for _, file := range earlier {
		if err != nil || kept[file.Path] || !filepath.IsLocal(file.Path) {
			continue
		}
		path := filepath.Join(b.out, file.Path)
		err = errors.Join(remove(path), remove(path+signatureSuffix))
		file.State = deleted
		b.report.Files = append(b.report.Files, file)
	}
	return err
}

// push writes the files to a registry, if there is an image to write to.
func (b *build) push(ctx context.Context) (err error) {
	if b.image == "" {
		return nil
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("push %s: %w", b.target, err)
		}
	}()
	paths := []string{indexFile}
	for _, file := range b.report.Files {
		if file.State != deleted {
			paths = append(paths, file.Path)
		}
	}
	files := map[string][]byte{}
	for _, path := range paths {
		for _, name := range []string{path, path + signatureSuffix} {
			text, err := os.ReadFile(filepath.Join(b.out, filepath.FromSlash(name)))
			if err == nil {
				files[name] = text
			} else if name == path || !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	target, err := oci.Create(ctx, b.target, oci.Options{Insecure: b.isInsecure})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, target.Close()) }()
	if err := oci.PutFiles(ctx, target, graphsType, files, b.target.Identifier); err != nil {
		return err
	}
	b.report.Pushed = b.target.String()
	return target.Commit(ctx)
}

// remove deletes a file; it may not exist.
func remove(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (r BuildReport) print(out io.Writer) error {
	var lines []string
	for _, file := range r.Files {
		lines = append(lines, fmt.Sprintf("%s\t%s\t%s", file.State, printable.Line(file.Path),
			printable.Count(file.Versions, "version")))
	}
	if len(lines) == 0 {
		lines = append(lines, "no channel has a version with a release")
	}
	lines = core.Align(lines)
	if r.Pushed != "" {
		lines = append(lines, "pushed "+r.Pushed)
	}
	return core.PrintLines(out, lines)
}
