package inventory_test

import (
	"os"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/pkg/cluster"
)

var test = sandboxtest.New(sandbox.Options{})

func TestMain(m *testing.M) { os.Exit(test.Run(m)) }

// connect makes a connection, as somebody.
func connect(t *testing.T, user string) *cluster.Cluster {
	t.Helper()
	config := rest.CopyConfig(test.Sandbox(t).Config)
	if user != "" {
		config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
	}
	c, err := cluster.Connect(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
