package contract_test

import (
	"os"
	"testing"

	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
)

var stage = machinetest.New(sandbox.Options{Nodes: sandbox.NoNodes, CRDs: []string{"testdata"}})

func TestMain(m *testing.M) { os.Exit(stage.Run(m)) }
