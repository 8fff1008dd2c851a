// Package etcdcluster runs a real etcd cluster on this machine: each member is a process at a loopback address of its
// own, with TLS and client certificates, as on the machines of a control plane.
//
// The data is lost at the end, because no member syncs it to the disk. The demo and tests use the package for programs
// that add and remove members of etcd.
//
// Start with New, then Bootstrap. Join adds a member, as an etcd operator does on a new machine; Kill ends a member, as
// the end of its machine does. authority.go has the certificates.
package etcdcluster

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/runlevel/runlevel/internal/sandbox/childprocess"
	"github.com/runlevel/runlevel/internal/sandbox/credentials"
)

// bootstrapTimeout limits the time until the first members serve.
const bootstrapTimeout = 2 * time.Minute

// Options configure a cluster.
type Options struct {
	Program string // etcd
	Folder  string // parent folder of data, logs and certificates
	// Front starts a server in front of a member before the member starts. Clients reach the server at ClientURL; the
	// server reaches the member at the URL member. Kill ends the member, the caller ends the server. Without Front,
	// clients reach the member itself.
	Front func(number int, member string) error
}

// A Cluster is an etcd cluster that runs on this machine.
type Cluster struct {
	Options
	ClientFiles TLSFiles // a certificate of a client

	network   string // the first three bytes of all addresses
	authority *credentials.Authority
	client    *http.Client
	processes *childprocess.Group

	mu      sync.Mutex
	running map[int]*childprocess.Component // members by number, until Kill
}

// New prepares a cluster. Other clusters on this machine are unlikely to have the same addresses.
func New(o Options) (*Cluster, error) {
	c := &Cluster{
		Options: o, processes: childprocess.NewGroup(o.Folder, o.Folder), running: map[int]*childprocess.Component{},
		network: fmt.Sprintf("127.%d.%d.", 1+rand.IntN(250), rand.IntN(250)),
	}
	c.processes.Restarts, c.processes.Changed = func(string) bool { return false }, func() {}
	var err error
	if c.authority, err = newAuthority(o.Folder); err == nil {
		c.ClientFiles, err = c.sign("client", "")
	}
	if err != nil {
		return nil, fmt.Errorf("create certificates for etcd: %w", err)
	}
	config, err := c.ClientTLS()
	if err != nil {
		return nil, err
	}
	c.client = &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{TLSClientConfig: config}}
	return c, nil
}

// Bootstrap starts the first members, and waits until they serve.
func (c *Cluster) Bootstrap(ctx context.Context, numbers ...int) error {
	var initial []string
	for _, number := range numbers {
		initial = append(initial, memberName(number)+"="+c.peerURL(number))
	}
	for _, number := range numbers {
		if err := c.start(number, initial, "new"); err != nil {
			return err
		}
	}
	var lastErr error
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, bootstrapTimeout, true,
		func(ctx context.Context) (bool, error) {
			_, lastErr = c.Members(ctx) // needs a quorum
			return lastErr == nil, nil
		})
	if err != nil {
		return fmt.Errorf("etcd's first members do not serve; their logs are in %s: %w", c.Folder, lastErr)
	}
	return nil
}

// Address returns the address of the member with a number, which need not run.
func (c *Cluster) Address(number int) string { return fmt.Sprint(c.network, number) }

// ClientURL returns the URL at which clients reach a member, or its front.
func (c *Cluster) ClientURL(number int) string { return "https://" + c.Address(number) + ":2379" }

func (c *Cluster) peerURL(number int) string { return "https://" + c.Address(number) + ":2380" }

// memberURL returns the URL at which the member itself serves clients.
func (c *Cluster) memberURL(number int) string {
	if c.Front == nil {
		return c.ClientURL(number)
	}
	return "https://" + c.Address(number) + ":12379"
}

func memberName(number int) string { return fmt.Sprintf("etcd-%d", number) }

// Join adds a member as a learner unless it is in the list, and starts it.
func (c *Cluster) Join(ctx context.Context, number int) error {
	isMember := func(m Member) bool { return m.PeerURLs[0] == c.peerURL(number) }
	members, err := c.Members(ctx)
	if err == nil && !slices.ContainsFunc(members, isMember) {
		if err = c.addLearner(ctx, c.peerURL(number)); err == nil {
			members, err = c.Members(ctx)
		}
	}
	if err != nil {
		return err
	}
	var initial []string
	for _, member := range members {
		if isMember(member) {
			member.Name = memberName(number)
		}
		initial = append(initial, member.Name+"="+member.PeerURLs[0])
	}
	return c.start(number, initial, "existing")
}

// start starts the process of a member.
func (c *Cluster) start(number int, initial []string, state string) error {
	name := memberName(number)
	files, err := c.sign(name, c.Address(number))
	if err != nil {
		return fmt.Errorf("create a certificate for %s: %w", name, err)
	}
	if c.Front != nil {
		if err := c.Front(number, c.memberURL(number)); err != nil {
			return fmt.Errorf("start a server in front of %s: %w", name, err)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	member := c.processes.Add(childprocess.Command{Name: name, Program: c.Program, Args: []string{
		"--name", name, "--data-dir", filepath.Join(c.Folder, name),
		"--listen-peer-urls", c.peerURL(number), "--initial-advertise-peer-urls", c.peerURL(number),
		"--listen-client-urls", c.memberURL(number), "--advertise-client-urls", c.ClientURL(number),
		"--cert-file", files.Cert, "--key-file", files.Key, "--trusted-ca-file", files.CA, "--client-cert-auth",
		"--peer-cert-file", files.Cert, "--peer-key-file", files.Key, "--peer-trusted-ca-file", files.CA,
		"--peer-client-cert-auth",
		"--initial-cluster", strings.Join(initial, ","), "--initial-cluster-state", state, "--unsafe-no-fsync",
	}})
	if err := c.processes.Start(member); err != nil {
		return err
	}
	c.running[number] = member
	return nil
}

// HasEnded reports whether the process of a member was started, and has ended by itself.
func (c *Cluster) HasEnded(number int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	member := c.running[number]
	return member != nil && member.PID() == 0
}

// Kill stops a member as if its machine had crashed.
func (c *Cluster) Kill(number int) {
	c.mu.Lock()
	member := c.running[number]
	delete(c.running, number)
	c.mu.Unlock()
	if member != nil {
		member.Kill()
	}
}

// Stop ends all members. It must be called once.
func (c *Cluster) Stop() {
	c.processes.Stop()
	c.client.CloseIdleConnections()
}
