package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == launched {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestWhatIsLaunchedDoesNotWeighWhatWeDo(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ballast := make([]byte, 100<<20)
	for i := range ballast {
		ballast[i] = 1
	}
	took := filepath.Join(t.TempDir(), "took")
	if output, err := exec.Command(self, launched, took, "sleep", "0.01").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	var c cost
	if err := c.add(took); err != nil {
		t.Fatal(err)
	}
	if c.Seconds < 0.01 || c.PeakMB <= 0 || c.PeakMB > 60 || ballast[len(ballast)-1] == 0 {
		t.Errorf("%+v", c)
	}
	if err := c.add(took); err != nil || c.Seconds < 0.02 {
		t.Errorf("two processes: %+v, %v", c, err)
	}
}

func TestThatItFailsIsTheLaunchersFailure(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := exec.Command(self, launched, filepath.Join(t.TempDir(), "took"), "false").Run(); err == nil {
		t.Error("nobody has noticed")
	}
}
