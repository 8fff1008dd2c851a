package house

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A module outside of ours names everything that the interfaces of the two libraries show.
const outsideProgram = `package main

import (
	"context"
	"flag"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	hooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"

	"github.com/runlevel/runlevel/pkg/extensionserver"
	"github.com/runlevel/runlevel/pkg/machinehook"
)

func hook(stage machinehook.HookStage) machinehook.Hook {
	return machinehook.Hook{
		Name: "WaitForVolumes", Owner: "outside", Stage: stage, Machine: &machinev1beta1.Machine{},
		Act: func(context.Context, machinehook.HeldMachine) (machinehook.HookAnswer, error) {
			return machinehook.HookAnswer{IsDone: true}, nil
		},
	}
}

func main() {
	var serving extensionserver.ServingFlags
	serving.AddFlags(flag.CommandLine)
	server := &extensionserver.Server{
		UpdateMachine: func(context.Context, *hooksv1.UpdateMachineRequest, *hooksv1.UpdateMachineResponse) error { return nil },
	}
	_ = server.Serve(context.Background(), serving)
	_ = []machinehook.Hook{hook(machinehook.BeforeDrain), hook(machinehook.BeforeTerminate)}
}
`

func TestOtherModulesCanUseTheLibraries(t *testing.T) {
	ours, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	required, err := os.ReadFile(filepath.Join(ours, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	_, requirements, _ := strings.Cut(string(required), "\n") // without the module's name
	outside := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(outside, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	sums, err := os.ReadFile(filepath.Join(ours, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	write("main.go", outsideProgram)
	write("go.sum", string(sums))
	write("go.mod", fmt.Sprintf("module example.com/outside\n%s\nrequire %s v0.0.0\nreplace %[2]s => %s\n",
		requirements, strings.TrimSuffix(module, "/"), ours))
	build := exec.Command("go", "vet", "-mod=mod", ".")
	build.Dir = outside
	if output, err := build.CombinedOutput(); err != nil {
		t.Errorf("another module can't use machinehook and extensionserver: %v\n%s", err, output)
	}
}
