package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// A server is the sandbox of a round.
type server struct {
	runlevel   string // the program
	name       string
	admin      rest.Interface
	kubeconfig string // file of an ordinary user, who is subject to priority and fairness
}

// startServer starts a sandbox, and writes the user's kubeconfig below a folder.
func startServer(ctx context.Context, runlevel, below string) (*server, error) {
	s := &server{
		runlevel:   runlevel,
		name:       fmt.Sprint("bench-", os.Getpid()),
		kubeconfig: filepath.Join(below, "kubeconfig"),
	}
	if _, err := s.sandbox(ctx, "up", "--detach"); err != nil {
		return nil, errors.Join(err, s.stop(ctx))
	}
	if err := s.connect(ctx); err != nil {
		return nil, errors.Join(err, s.stop(ctx))
	}
	return s, nil
}

func (s *server) connect(ctx context.Context) error {
	file, err := s.sandbox(ctx, "kubeconfig")
	if err != nil {
		return err
	}
	kubeconfig, err := clientcmd.LoadFromFile(strings.TrimSpace(string(file)))
	if err != nil {
		return err
	}
	config, err := clientcmd.NewDefaultClientConfig(*kubeconfig, nil).ClientConfig()
	if err != nil {
		return err
	}
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return err
	}
	s.admin = client.RESTClient()
	kubeconfig.CurrentContext = "user"
	return clientcmd.WriteToFile(*kubeconfig, s.kubeconfig)
}

// stop removes the sandbox, even after an interrupt.
func (s *server) stop(ctx context.Context) error {
	_, err := s.sandbox(context.WithoutCancel(ctx), "down")
	return err
}

func (s *server) sandbox(ctx context.Context, arguments ...string) ([]byte, error) {
	process := interruptible(ctx, s.runlevel, append([]string{"sandbox"}, append(arguments, "--name", s.name)...)...)
	process.Stderr = os.Stderr
	output, err := process.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", process, err)
	}
	return output, nil
}

// requests returns how many requests of the ordinary user the API server has let through or rejected.
func (s *server) requests(ctx context.Context) (float64, error) {
	metrics, err := s.admin.Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return 0, err
	}
	return countRequests(metrics)
}

// userSchema is the flow schema of the ordinary user alone.
const userSchema = `flow_schema="global-default"`

func countRequests(metrics []byte) (float64, error) {
	sum := 0.0
	lines := bufio.NewScanner(bytes.NewReader(metrics))
	for lines.Scan() {
		name, labels, _ := strings.Cut(lines.Text(), "{")
		if !strings.Contains(labels, userSchema) {
			continue
		}
		switch name {
		case "apiserver_flowcontrol_dispatched_requests_total", "apiserver_flowcontrol_rejected_requests_total":
			value, err := strconv.ParseFloat(labels[strings.LastIndex(labels, " ")+1:], 64)
			if err != nil {
				return 0, err
			}
			sum += value
		}
	}
	return sum, lines.Err()
}

const (
	settlePeriod  = 500 * time.Millisecond
	settleWrites  = 5 // writes in a period: the leases of controllers are always renewed
	settlePeriods = 2
	settleTimeout = 3 * time.Minute
)

// settle waits until the controllers have handled the objects of a tool, which would slow down the next tool. The
// resourceVersion of a list counts all writes.
func (s *server) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	ticker := time.NewTicker(settlePeriod)
	defer ticker.Stop()
	for previous, periods := 0, 0; periods < settlePeriods; {
		current, err := s.resourceVersion(ctx)
		if err != nil {
			return fmt.Errorf("wait until the controllers have settled: %w", err)
		}
		if periods++; current-previous > settleWrites {
			periods = 0
		}
		previous = current
		select {
		case <-ctx.Done():
			return fmt.Errorf("the controllers have not settled: %w", ctx.Err())
		case <-ticker.C:
		}
	}
	return nil
}

func (s *server) resourceVersion(ctx context.Context) (int, error) {
	content, err := s.admin.Get().AbsPath("/api/v1/namespaces").Param("limit", "1").DoRaw(ctx)
	if err != nil {
		return 0, err
	}
	var list struct {
		Metadata struct {
			ResourceVersion int `json:",string"`
		}
	}
	err = json.Unmarshal(content, &list)
	return list.Metadata.ResourceVersion, err
}
