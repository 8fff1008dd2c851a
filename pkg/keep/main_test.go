package keep_test

import (
	"os"
	"testing"

	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// test is the control plane of these tests. Its audit log has every request of those who test.
var test = sandboxtest.New(sandbox.Options{AuditPolicy: `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  userGroups: [system:masters, system:serviceaccounts]
- level: None
`})

func TestMain(m *testing.M) { os.Exit(test.Run(m)) }
