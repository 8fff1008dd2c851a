package infra_test

import (
	"os"
	"testing"

	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
)

var shared = machinetest.New(sandbox.Options{Nodes: sandbox.NoNodes})

func TestMain(m *testing.M) { os.Exit(shared.Run(m)) }
