package copy_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/runlevel/runlevel/internal/oci"
	"github.com/runlevel/runlevel/internal/oci/copy"
)

// skopeo runs the program of that name, or skips the test.
func skopeo(t *testing.T, args ...string) {
	t.Helper()
	program, err := exec.LookPath("skopeo")
	if err != nil {
		t.Skip("skopeo is not installed")
	}
	command := exec.CommandContext(t.Context(), program, append([]string{"--insecure-policy"}, args...)...)
	command.Env = append(os.Environ(), "TMPDIR="+t.TempDir())
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("skopeo %v: %v\n%s", args, err, output)
	}
}

func TestSkopeoReadsAndWritesTheSameLayoutsAndArchives(t *testing.T) {
	index := randomIndex(t)
	source := serve(t)
	source.push(t, "shop/web:1", index)
	folder := t.TempDir()
	ours := oci.Location{Path: filepath.Join(folder, "layout"), Identifier: "1"}
	packed := oci.Location{Path: filepath.Join(folder, "ours.tar"), Identifier: "1"}
	mustCopy(t, source.location(t, "shop/web:1"), ours, copy.Options{})
	mustCopy(t, ours, packed, copy.Options{})

	// layout -> archive and back, by skopeo and by us
	theirs := filepath.Join(folder, "theirs.tar")
	skopeo(t, "copy", "--all", "--preserve-digests", "oci-archive:"+packed.Path+":1",
		"oci:"+filepath.Join(folder, "theirs")+":1")
	skopeo(t, "copy", "--all", "--preserve-digests", "oci:"+ours.Path+":1", "oci-archive:"+theirs+":1")
	mustCopy(t, oci.Location{Path: filepath.Join(folder, "theirs"), Identifier: "1"}, source.location(t, "copy/web:1"),
		copy.Options{})
	mustCopy(t, oci.Location{Path: theirs, Identifier: "1"}, source.location(t, "copy/web:2"), copy.Options{})
	checkRegistry(t, source.location(t, "copy/web:1"), digestOf(t, index))
	checkRegistry(t, source.location(t, "copy/web:2"), digestOf(t, index))

	// what skopeo has written stays when we add an image
	mustCopy(t, source.location(t, "shop/web:1"), oci.Location{Path: theirs, Identifier: "added"}, copy.Options{})
	skopeo(t, "inspect", "--raw", "oci-archive:"+theirs+":1")
	skopeo(t, "inspect", "--raw", "oci-archive:"+theirs+":added")
}
