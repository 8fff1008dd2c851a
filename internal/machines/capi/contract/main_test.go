package contract_test

import (
	"os"
	"testing"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
)

var stage = machinetest.New(sandbox.Options{Nodes: sandbox.NoNodes, CRDs: []string{"testdata"}})

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(stage.Run(m))
}
