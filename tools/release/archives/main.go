// Command archives builds the archives of the sandbox's programs, one for each platform, that a release has among its
// files. It takes about 5 minutes on two cores for each of them.
//
// Users accept only archives with the digests in internal/sandbox/binaries/archives.txt. So it fails if it gets others;
// with -update, it writes them there. It publishes nothing, and the programs themselves are those of
// sandbox/controlplane. Start with run.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"

	"github.com/runlevel/runlevel/internal/sandbox/binaries"
)

const digestsFile = "../../internal/sandbox/binaries/archives.txt"

func main() {
	release := flag.String("release", "", "the release whose files the archives become, such as v0.1.0")
	folder := flag.String("o", "../../bin/programs", "the folder of the archives")
	update := flag.Bool("update", false, "write the digests to the source")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *release, *folder, *update); err != nil {
		fmt.Fprintln(os.Stderr, "archives:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, release, folder string, update bool) error {
	text, values := binaries.Archives()
	switch {
	case release == "":
		return fmt.Errorf("name the release that will have the archives: -release v0.1.0")
	case update:
	case release != values["release"]:
		fmt.Fprintf(os.Stderr, "%s uses the sandbox's programs of %s\n", release, values["release"])
		return nil
	case runtime.Version() != values["go"]:
		return fmt.Errorf("the archives are built by %s, and this is %s: set GOTOOLCHAIN=%[1]s", values["go"],
			runtime.Version())
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	written, err := binaries.WriteArchives(ctx, release, folder, os.Stderr)
	switch {
	case err != nil:
		return err
	case update:
		return os.WriteFile(digestsFile, []byte(written), 0o644)
	case written != text:
		return fmt.Errorf("the archives have other digests than the source: run \"make programs\", and commit the "+
			"file\n%s",
			written)
	}
	return nil
}
