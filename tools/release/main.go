// Command release writes the files of a release of Runlevel: programs, images, manifests, and the files by which users
// verify and install them. The same commit gives the same bytes on each machine.
//
// It publishes nothing, and sets no tag: docs/releasing.md describes how a maintainer cuts a release. The command
//
//	make release VERSION=v0.1.0 KEY=cosign.key
//
// runs it. Start with steps.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/runlevel/runlevel/internal/cli/release"
	"github.com/runlevel/runlevel/internal/release/signature/sigstore"
	"github.com/runlevel/runlevel/internal/text/buildinfo"
	"github.com/runlevel/runlevel/tools/release/packages"
)

// steps write the files of a release, in this order. A step uses the files of the steps before it.
var steps = []step{
	{"programs", buildPrograms},
	{"programs of the sandbox", addSandboxPrograms},
	{"archives", packArchives},
	{"packages", writePackages},
	{"image", buildImage},
	{"release of operator and machine controller", buildPayload},
	{"manifests", writeManifests},
	{"charts", writeCharts},
	{"schemas", writeSchemas},
	{"signatures of images", signImages},
	{"SBOMs and provenance", writeDocuments},
	{"release notes", writeNotes},
	{"checksums", writeChecksums},
}

// A step writes some files of a release into its draft.
type step struct {
	name string
	run  func(ctx context.Context, d *draft) error
}

// options are the flags of the command.
type options struct {
	version, source, output, image, key string
	platforms                           []string
	isUnsigned, isSnapshot              bool
}

// A draft is a release whose files are being written.
type draft struct {
	options
	folder  string    // of the release's files, renamed to the output once complete
	scratch string    // folder of files for later steps, such as programs
	commit  string    // of the source
	time    time.Time // of the commit, and of all files

	archives []packages.Archive  // of the command line
	digest   string              // of the image of the programs
	payload  release.BuildReport // of the release of operator and machine controller
	private  *sigstore.PrivateKey
	public   []byte // key of the signatures in PEM
}

const allPlatforms = "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64,windows/amd64,windows/arm64"

const usage = `release writes the files of a release of Runlevel into a folder.

  go run . -version v0.1.0 -source ../.. -o ../../bin/release -key cosign.key

SOURCE_DATE_EPOCH is the time of all files; the default is the time of the commit. COSIGN_PASSWORD is the password of
the key.

Flags:
`

func main() {
	var o options
	flags := flag.NewFlagSet("release", flag.ExitOnError) // without those of libraries
	flags.StringVar(&o.version, "version", "", "the version, such as v0.1.0")
	flags.StringVar(&o.source, "source", "../..", "the folder of the repository")
	flags.StringVar(&o.output, "o", "", "the folder of the release; an earlier release there is replaced")
	flags.StringVar(&o.image, "image", "registry.example/runlevel",
		"the repository that the image will be pushed to, for the manifests and the signatures")
	flags.StringVar(&o.key, "key", "", "the private key of the signatures: ECDSA P-256, in PEM or encrypted by cosign")
	platforms := flags.String("platforms", allPlatforms,
		"the platforms of the command line, and with linux of the image")
	flags.BoolVar(&o.isUnsigned, "unsigned", false, "do not sign, for a trial without a key")
	flags.BoolVar(&o.isSnapshot, "snapshot", false,
		"do not check the worktree, the tag and CHANGELOG.md, for a trial of uncommitted changes")
	flags.Usage = func() { fmt.Fprint(os.Stderr, usage); flags.PrintDefaults() }
	_ = flags.Parse(os.Args[1:]) // it exits
	o.platforms = strings.Split(*platforms, ",")
	if flags.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "release: %q is not a flag: see -help\n", flags.Arg(0))
		os.Exit(1)
	}
	if used := runtime.Version(); used != toolchain() && !o.isSnapshot { // it compresses archives, for example
		fmt.Fprintf(os.Stderr, "release: this program was built by %s, and releases are by %s: use make release, or "+
			"pass -snapshot for a trial\n", used, toolchain())
		os.Exit(1)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := write(ctx, o); err != nil {
		if ctx.Err() != nil {
			err = errors.New("interrupted: nothing was written")
		}
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// write writes a release to its folder, or nothing.
func write(ctx context.Context, o options) error {
	d, err := check(ctx, o)
	if err != nil {
		return err
	}
	if err := useOwnSettings(ctx); err != nil {
		return err
	}
	buildinfo.Version, buildinfo.Commit = d.version, d.commit // of the verbs that this process runs
	// The name is always the same, so that nothing is left of a run that was killed.
	parent := filepath.Join(filepath.Dir(d.output), "."+filepath.Base(d.output)+".partial")
	if err := os.RemoveAll(parent); err != nil {
		return err
	}
	defer os.RemoveAll(parent)
	d.folder, d.scratch = filepath.Join(parent, "release"), filepath.Join(parent, "scratch")
	if err := errors.Join(os.MkdirAll(d.folder, 0o755), os.Mkdir(d.scratch, 0o755)); err != nil {
		return err
	}
	for i, s := range steps {
		if err := ctx.Err(); err != nil {
			return err
		}
		begin := time.Now()
		fmt.Fprintf(os.Stderr, "[%d/%d] %s\n", i+1, len(steps), s.name)
		if err := s.run(ctx, d); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		fmt.Fprintf(os.Stderr, "        %s\n", time.Since(begin).Round(100*time.Millisecond))
	}
	if err := d.replace(ctx, filepath.Join(parent, "earlier")); err != nil {
		return err
	}
	fmt.Printf("%s of commit %s is in %s\n", d.version, strings.TrimSpace(d.commit), d.output)
	return nil
}

// replace renames the folder to the output, and what was there to the path of an earlier release.
func (d *draft) replace(ctx context.Context, earlier string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	err := os.Rename(d.output, earlier)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	wasThere := err == nil
	err = os.Rename(d.folder, d.output)
	if err != nil && wasThere {
		err = errors.Join(err, os.Rename(earlier, d.output))
	}
	return err
}
