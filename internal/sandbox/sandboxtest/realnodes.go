package sandboxtest

import (
	"os"
	"testing"

	"github.com/runlevel/runlevel/internal/sandbox/realnode"
)

// NodesVariable has tests run on real nodes: "wanted" skips them where a program is missing, "required" lets them fail.
const NodesVariable = "RUNLEVEL_TEST_NODES"

// NeedRealNodes skips a test that needs real nodes, unless this run of the tests is for them. "make test-node" is.
func NeedRealNodes(t testing.TB) {
	t.Helper()
	NeedControlPlane(t)
	wanted := os.Getenv(NodesVariable)
	if wanted == "" {
		t.Skip(`it needs real nodes: "make test-node" runs it`)
	}
	switch _, err := realnode.FindPrograms(); {
	case err != nil && wanted == "required":
		t.Fatal(err)
	case err != nil:
		t.Skip(err)
	}
}
