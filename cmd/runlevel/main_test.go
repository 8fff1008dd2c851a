package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/runlevel/runlevel/internal/sandbox"
)

var update = flag.Bool("update", false, "write again the files that scripts compare output with")

func TestMain(m *testing.M) {
	testscript.Main(suite{m}, map[string]func(){"runlevel": checkedMain})
}

// A suite runs the tests, and stops the shared control plane afterwards.
type suite struct{ *testing.M }

func (s suite) Run() int { return shared.Run(s.M) }

// Each script in testdata shows one task of a user. The scripts share the user's cache, which has the programs of the
// control plane. $NAME is the name that a script may give its sandbox, $EXAMPLES the folder of sample releases,
// $INSTALL that of the operator's manifests, and $MANIFESTS that of the machine controller's. A script that begins with
// "cluster" runs on a control plane that it shares with others: see script_cluster_test.go.
func TestScripts(t *testing.T) {
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	examples, err := filepath.Abs("../../examples")
	if err != nil {
		t.Fatal(err)
	}
	commands := map[string]func(*testscript.TestScript, bool, []string){
		"exits":       exits,
		"await-ready": awaitReady,
		"cp-release":  copyRelease,
	}
	maps.Copy(commands, clusterCommands)
	platform, err := filepath.Abs("testdata/platform")
	if err != nil {
		t.Fatal(err)
	}
	definitions, err := filepath.Abs("../../install")
	if err != nil {
		t.Fatal(err)
	}
	schemas, err := filepath.Abs("../../docs/schemas")
	if err != nil {
		t.Fatal(err)
	}
	manifests, err := filepath.Abs("../../manifests")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		UpdateScripts:       *update,
		Setup: func(env *testscript.Env) error {
			env.Setenv("XDG_CACHE_HOME", cache)
			env.Setenv("HOME", os.Getenv("HOME"))
			env.Setenv("EXAMPLES", examples)
			env.Setenv("PLATFORM", platform)
			env.Setenv("INSTALL", definitions)
			env.Setenv("MANIFESTS", manifests)
			env.Setenv(schemasVariable, schemas)
			env.Setenv("KUBEBUILDER_ASSETS", os.Getenv("KUBEBUILDER_ASSETS"))
			name := fmt.Sprintf("script-%d-%s", os.Getpid(), rand.String(5))
			env.Setenv("NAME", name)
			env.Values["t"], env.Values[guestKey{}] = env.T(), &guest{}
			env.Defer(func() { _ = sandbox.Down(context.Background(), name) }) // deletes a leftover sandbox
			return nil
		},
		Cmds: commands,
	})
}

// exits runs a command and checks its exit code: exits CODE COMMAND [ARGUMENT...]
func exits(ts *testscript.TestScript, _ bool, args []string) {
	code := 0
	var ended *exec.ExitError
	if err := ts.Exec(args[1], args[2:]...); errors.As(err, &ended) {
		code = ended.ExitCode()
	} else {
		ts.Check(err)
	}
	if args[0] != strconv.Itoa(code) {
		ts.Fatalf("exit code %d, want %s", code, args[0])
	}
}

// awaitReady waits until a sandbox that a script has started in the background is ready: await-ready NAME
func awaitReady(ts *testscript.TestScript, _ bool, args []string) {
	deadline := time.After(time.Minute)
	for tick := time.NewTicker(50 * time.Millisecond); ; {
		if state, err := sandbox.Find(args[0]); err == nil && state.Ready {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			ts.Fatalf("sandbox %s is not ready", args[0])
		}
	}
}

// copyRelease copies a release and changes its version: cp-release NEW OLD VERSION
func copyRelease(ts *testscript.TestScript, _ bool, args []string) {
	target := filepath.Join(ts.Getenv("WORK"), args[0])
	ts.Check(os.CopyFS(target, os.DirFS(ts.MkAbs(args[1]))))
	version := regexp.MustCompile(`("version"|"name"): "\d+\.\d+\.\d+"`)
	for _, name := range []string{"release-metadata", "image-references"} {
		file := filepath.Join(target, "release-manifests", name)
		text, err := os.ReadFile(file)
		ts.Check(err)
		ts.Check(os.WriteFile(file, version.ReplaceAll(text, []byte(`$1: "`+args[2]+`"`)), 0o644))
	}
}
