package sandboxtest

import (
	"os"
	"testing"

	"github.com/runlevel/runlevel/internal/sandbox/realnode"
)

// NodesVariable enables tests on real nodes. If a program is missing, "wanted" skips the tests, and "required" fails
// them.
const NodesVariable = "RUNLEVEL_TEST_NODES"

// NeedRealNodes skips a test that needs real nodes, unless NodesVariable is set, as by "make test-node".
func NeedRealNodes(t testing.TB) {
	t.Helper()
	NeedControlPlane(t)
	wanted := os.Getenv(NodesVariable)
	if wanted == "" {
		t.Skip(`this test needs real nodes: "make test-node" runs it`)
	}
	switch _, err := realnode.FindPrograms(); {
	case err != nil && wanted == "required":
		t.Fatal(err)
	case err != nil:
		t.Skip(err)
	}
}
