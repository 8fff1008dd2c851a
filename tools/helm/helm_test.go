// Package helm tests the charts of tools/release/chart with Helm 4 on a real control plane.
//
// It has nothing but tests, in a module of its own, since Helm is large. Start with TestOperator.
package helm

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/cmd"

	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/tools/release/chart"
)

var shared = sandboxtest.New(sandbox.Options{})

// asHelm is the environment variable with which the program of the tests is Helm.
const asHelm = "RUNLEVEL_TEST_AS_HELM"

func TestMain(m *testing.M) {
	if os.Getenv(asHelm) == "" {
		os.Exit(shared.Run(m))
	}
	root, err := cmd.NewRootCmd(os.Stdout, os.Args[1:], cmd.SetupLogging)
	if err != nil {
		panic(err)
	}
	if root.Execute() != nil { // Helm has printed the error
		os.Exit(1)
	}
}

// helm runs a command of Helm, and returns its output.
func helm(t *testing.T, arguments ...string) (string, error) {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), program, arguments...)
	command.Args[0] = "helm" // the field manager of its applies
	home := t.TempDir()
	command.Env = append(os.Environ(), asHelm+"=yes", "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home,
		"HELM_DATA_HOME="+home)
	out, err := command.CombinedOutput()
	return string(out), err
}

// mustHelm runs a command of Helm on the sandbox, which must succeed.
func mustHelm(t *testing.T, arguments ...string) string {
	t.Helper()
	out, err := onCluster(t, arguments...)
	if err != nil {
		t.Fatalf("helm %s: %v\n%s", strings.Join(arguments, " "), err, out)
	}
	return out
}

// onCluster runs a command of Helm on the sandbox.
func onCluster(t *testing.T, arguments ...string) (string, error) {
	t.Helper()
	return helm(t, append(arguments, "--kubeconfig="+shared.Sandbox(t).Kubeconfig)...)
}

const (
	operator = chart.Operator
	machines = chart.Machines
)

// imageOf returns the image of a version.
func imageOf(version string) string {
	return fmt.Sprintf("registry.example/runlevel@sha256:%x", sha256.Sum256([]byte(version)))
}

// write writes the chart of a version, and returns its folder.
func write(t *testing.T, name, version string) string {
	t.Helper()
	folder := filepath.Join(t.TempDir(), name)
	c := chart.Chart{Name: name, Version: version, Image: imageOf(version)}
	if err := c.Write(filepath.Join("..", ".."), folder); err != nil {
		t.Fatal(err)
	}
	return folder
}

// namespaceOf returns the namespace of a chart.
func namespaceOf(chart string) string {
	if chart == operator {
		return "runlevel-system"
	}
	return machines
}
