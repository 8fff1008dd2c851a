package sandboxtest

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// older is an early commit whose operator leaves out what a newer one may know. It has the present libraries of
// Kubernetes, so that these are compiled once.
const older = "20908b330cfab32f2f8fbcce10fd647fcceae442"

// olderEdits give the older programs a version, and templates without the field .Images.
var olderEdits = map[string][2]string{
	"internal/cli/core/version.go": {"info.Version = build.Main.Version", `info.Version = "v0.0.9"`},
	"pkg/payload/template.go":      {"Images         map[string]string", "Pictures       map[string]string"},
	"pkg/payload/read.go":          {"Images:         r.payload.Images", "Pictures:       r.payload.Images"},
}

// Older returns a folder with the programs runlevel and runlevel-cluster of an earlier commit, and its folders install
// and manifests. The programs are built once, beside the present ones. A test without git, or without that commit, is
// skipped; in a workflow of GitHub it fails.
func Older(t testing.TB) string {
	t.Helper()
	NeedControlPlane(t)
	builds.Lock()
	defer builds.Unlock()
	output, err := exec.Command("git", "rev-parse", "--show-toplevel", older+"^{commit}").Output()
	if err != nil {
		skip := t.Skipf
		if os.Getenv("GITHUB_ACTIONS") != "" {
			skip = t.Fatalf
		}
		skip("this test builds commit %s, and needs git and a clone with its whole history: %v", older, err)
	}
	top, _, _ := strings.Cut(string(output), "\n")
	sum := sha256.Sum256(fmt.Append(nil, runtime.Version(), olderEdits))
	folder := filepath.Join(top, "bin", fmt.Sprintf("older-%s-%x", older[:12], sum[:4]))
	if _, err := os.Stat(folder); err == nil {
		return folder
	}
	source := t.TempDir()
	unpack(t, top, source)
	for file, edit := range olderEdits {
		text, err := os.ReadFile(filepath.Join(source, file))
		if err != nil || !bytes.Contains(text, []byte(edit[0])) {
			t.Fatalf("%s of the older commit has no %q (%v)", file, edit[0], err)
		}
		if err := os.WriteFile(filepath.Join(source, file), bytes.Replace(text, []byte(edit[0]), []byte(edit[1]), 1),
			0o600); err != nil {
			t.Fatal(err)
		}
	}
	err = os.MkdirAll(filepath.Dir(folder), 0o755)
	partial, failed := os.MkdirTemp(filepath.Dir(folder), ".older-")
	if err := errors.Join(err, failed); err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(partial)
	build := exec.Command("go", "build", "-C", source, "-o", partial+"/", "./cmd/runlevel", "./cmd/runlevel-cluster")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the older programs: %v\n%s", err, out)
	}
	unpack(t, top, partial, "install/*.yaml", "manifests/*.yaml")
	// Tests of another package may have written the same folder meanwhile.
	if err := os.Rename(partial, folder); err != nil && !errors.Is(err, fs.ErrExist) {
		t.Fatal(err)
	}
	return folder
}

// unpack writes files of the older commit into a folder; all, if no paths are named.
func unpack(t testing.TB, repository, folder string, paths ...string) {
	t.Helper()
	archive, err := exec.Command("git", append([]string{"-C", repository, "archive", older}, paths...)...).Output()
	if err != nil {
		t.Fatal("read the older commit: ", err)
	}
	tar := exec.Command("tar", "-x", "-C", folder)
	tar.Stdin = bytes.NewReader(archive)
	if out, err := tar.CombinedOutput(); err != nil {
		t.Fatalf("unpack the older commit: %v\n%s", err, out)
	}
}
