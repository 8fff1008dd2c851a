package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/runlevel/runlevel/bench/internal/api"
)

// A server is the sandbox that all contestants share for a round.
type server struct {
	runlevel   string // the program that runs it
	name       string
	admin      *api.Server
	kubeconfig string // of the ordinary user, whom priority and fairness holds back
}

// startServer starts one. The user's kubeconfig is written below a folder.
func startServer(ctx context.Context, runlevel, below string) (*server, error) {
	s := &server{runlevel: runlevel, name: fmt.Sprint("bench-", os.Getpid()), kubeconfig: filepath.Join(below, "kubeconfig")}
	if _, err := s.sandbox(ctx, "up", "--detach"); err != nil {
		return nil, errors.Join(err, s.stop(ctx))
	}
	if err := s.open(ctx); err != nil {
		return nil, errors.Join(err, s.stop(ctx))
	}
	return s, nil
}

func (s *server) open(ctx context.Context) error {
	printed, err := s.sandbox(ctx, "kubeconfig")
	if err != nil {
		return err
	}
	file := strings.TrimSpace(string(printed))
	if s.admin, err = api.Open(file); err != nil {
		return err
	}
	if err := api.As("user", file, s.kubeconfig); err != nil {
		return err
	}
	return s.labelNodes(ctx)
}

// labelNodes makes the nodes fit for the operators of real releases, which run beside the
// control plane.
func (s *server) labelNodes(ctx context.Context) error {
	const labels = `{"metadata": {"labels": {"node-role.kubernetes.io/master": "", "node-role.kubernetes.io/control-plane": ""}}}`
	var nodes struct {
		Items []struct{ Metadata struct{ Name string } }
	}
	if err := s.admin.Get(ctx, "/api/v1/nodes", api.JSON, &nodes); err != nil {
		return err
	}
	for _, node := range nodes.Items {
		err := s.admin.Do(ctx, api.Request{
			Method: http.MethodPatch, Path: "/api/v1/nodes/" + node.Metadata.Name, Accept: api.JSON,
			Type: "application/merge-patch+json", Body: []byte(labels),
		}, nil)
		if err != nil {
			return fmt.Errorf("label node %s: %w", node.Metadata.Name, err)
		}
	}
	return nil
}

// stop removes it, however the benchmark ends.
func (s *server) stop(ctx context.Context) error {
	_, err := s.sandbox(context.WithoutCancel(ctx), "down")
	return err
}

func (s *server) sandbox(ctx context.Context, arguments ...string) ([]byte, error) {
	command := exec.CommandContext(ctx, s.runlevel, append([]string{"sandbox"}, append(arguments, "--name", s.name)...)...)
	command.Stderr = os.Stderr
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	printed, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", command, err)
	}
	return printed, nil
}

// A meter is what the API server has counted so far.
type meter struct {
	requests float64
	cpu      float64 // seconds
}

// Only the ordinary user is of this flow schema, so what it has let through is
// what the contestants have sent.
const ordinary = `flow_schema="global-default"`

func (s *server) read(ctx context.Context) (meter, error) {
	var m meter
	err := s.admin.Do(ctx, api.Request{Method: http.MethodGet, Path: "/metrics", Accept: "text/plain"}, func(body io.Reader) error {
		return m.scan(body)
	})
	return m, err
}

// scan adds up what counts in the text format of metrics.
func (m *meter) scan(text io.Reader) error {
	lines := bufio.NewScanner(text)
	for lines.Scan() {
		line := lines.Text()
		name, _, _ := strings.Cut(line, "{")
		value, _ := strconv.ParseFloat(line[strings.LastIndex(line, " ")+1:], 64)
		switch {
		case strings.HasPrefix(line, "process_cpu_seconds_total "):
			m.cpu = value
		case !strings.Contains(line, ordinary):
		case name == "apiserver_flowcontrol_dispatched_requests_total", name == "apiserver_flowcontrol_rejected_requests_total":
			m.requests += value
		}
	}
	return lines.Err()
}

const (
	look     = 500 * time.Millisecond
	idle     = 5 // writes between two looks: the leases of controllers are never quiet
	quiet    = 2 // looks in a row
	patience = 3 * time.Minute
)

// settle waits until the controllers have dealt with what was applied: else they would
// take their time out of that of the next tool. The store counts its writes in the
// resourceVersion of every list.
func (s *server) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	ticks := time.NewTicker(look)
	defer ticks.Stop()
	for before, calm := 0, 0; calm < quiet; {
		var list struct {
			Metadata struct {
				ResourceVersion int `json:",string"`
			}
		}
		if err := s.admin.Get(ctx, "/api/v1/namespaces?limit=1", api.JSON, &list); err != nil {
			return fmt.Errorf("waiting until the controllers have settled: %w", err)
		}
		if calm++; list.Metadata.ResourceVersion-before > idle {
			calm = 0
		}
		before = list.Metadata.ResourceVersion
		select {
		case <-ctx.Done():
			return fmt.Errorf("the controllers have not settled: %w", ctx.Err())
		case <-ticks.C:
		}
	}
	return nil
}
