package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == launcher {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestPeakMemoryDoesNotIncludeThatOfTheBenchmark(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ballast := make([]byte, 100<<20)
	for i := range ballast {
		ballast[i] = 1
	}
	file := filepath.Join(t.TempDir(), "cost")
	if output, err := exec.Command(self, launcher, file, "sleep", "0.01").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	took, err := readCost(file)
	if err != nil {
		t.Fatal(err)
	}
	if took.Seconds < 0.01 || took.PeakMB <= 0 || took.PeakMB > 60 || ballast[len(ballast)-1] == 0 {
		t.Errorf("got %+v, want at least 0.01 s and at most 60 MB", took)
	}
	if both := took.add(took); both.Seconds < 0.02 || both.PeakMB != took.PeakMB {
		t.Errorf("two processes: got %+v, want at least 0.02 s and %v MB", both, took.PeakMB)
	}
}

func TestLauncherFailsWithItsCommand(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := exec.Command(self, launcher, filepath.Join(t.TempDir(), "cost"), "false").Run(); err == nil {
		t.Error("the launcher has not failed")
	}
}
