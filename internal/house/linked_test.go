package house

import (
	"os/exec"
	"strings"
	"testing"
)

// TestTheClusterProgramHasNoValidation: the validation of Kubernetes' own kinds is large, and a newer cluster may accept what
// it refuses. So only the command line has it, and what a cluster runs leaves the answer to the API server.
func TestTheClusterProgramHasNoValidation(t *testing.T) {
	linked := func(program string) bool {
		command := exec.Command("go", "list", "-deps", "./cmd/"+program)
		command.Dir = root
		listed, err := command.Output()
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(string(listed), "\nk8s.io/kubernetes/")
	}
	if linked("runlevel-cluster") {
		t.Error("runlevel-cluster imports k8s.io/kubernetes: give it what internal/review/refusals finds as data, or leave it out")
	}
	if !linked("runlevel") {
		t.Error("runlevel does not import k8s.io/kubernetes: this test looks for the wrong name")
	}
}
